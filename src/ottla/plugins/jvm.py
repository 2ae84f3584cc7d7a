"""The JVM beside a node, in which those of its plug-ins run that are classes of Java.

One process has them all (`OttlaPlugins.java`). It is started from source, which takes a JDK and nothing that would have
to be compiled before, with the class path that Kafka's own start scripts take: `CLASSPATH`. Its standard input is a
socket over which questions go and answers come, so that nothing that a plug-in prints can get between them, and so that
it ends with the node, however that ends.

A thread of its own reads the answers, and sees when the process is gone: whoever waits is told at once, and the process
is started again, but not more than once in a while. A plug-in that does not answer in time has its process ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.plugins.values import decode, encode

logger = logging.getLogger(__name__)

_SOURCE: Final = Path(__file__).with_name("OttlaPlugins.java")
# Small, and soon there: it has little to do.
_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xms16m")
_START_TIMEOUT_S: Final = 120.0
_SEND_TIMEOUT_S: Final = 5
_STOP_TIMEOUT_S: Final = 8.0
_RESTART_INTERVAL_S: Final = 60.0
_STDERR: Final = 2
_ANSWERED, _REFUSED = 0, 1
_length = struct.Struct(">i")


class CannotStart(Exception):
    """The plug-ins cannot be run; `index` is the first that cannot be, None where it is about all of them."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.index = index


class NoAnswer(Exception):
    """A plug-in could not be asked, or did not answer; the message says why."""


class Refused(Exception):
    """A plug-in says that it cannot do what it was asked for: in words, or by Kafka's code for the error and words."""


class Failed(Exception):
    """A plug-in failed in a way of its own."""


class JavaClass(NamedTuple):
    """A class that is to be run: `create-topic`, `alter-config`, `assignor` or `authorizer`, and its name."""

    kind: str
    name: str


class Jvm:
    """The process, kept alive. Questions may be asked from any thread."""

    def __init__(self, classes: Sequence[JavaClass], settings: Mapping[str, str]) -> None:
        self._first_words = [[list(each) for each in classes], dict(settings)]
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._thread: threading.Thread | None = None
        self._starting: subprocess.Popen[bytes] | None = None
        self.first_questions: dict[int, object] = {}
        """What a plug-in is asked before all else whenever the process was started again."""
        self._restarted = -_RESTART_INTERVAL_S

    @property
    def pid(self) -> int | None:
        """The process, while there is one that answers."""
        session = self._session
        return None if session is None else session.process.pid

    def start(self) -> list[str]:
        """Start it, which takes a second or two; the names that plug-ins give themselves. Raises CannotStart."""
        session, names = self._launch()
        self._session = session
        self._thread = threading.Thread(target=self._attend, args=(session,), name="ottla-plugins", daemon=True)
        self._thread.start()
        return names

    def ask(self, plugin: int, question: object) -> Future[Any]:
        """What a plug-in says; the future fails with Refused, Failed or NoAnswer."""
        session = self._session
        if session is None:
            answer: Future[Any] = Future()
            answer.set_exception(NoAnswer("its JVM has ended, and is being started again"))
            return answer
        return session.ask(plugin, question)

    def give_up(self) -> None:
        """A plug-in does not answer: end the process, and with it everything that may hang there."""
        session = self._session
        if session is not None:
            session.process.kill()

    def stop(self) -> None:
        """Let the plug-ins close, and the process end."""
        self._stopping.set()
        with self._lock:
            if self._starting is not None:
                self._starting.kill()
        session = self._session
        if session is not None:
            session.hang_up()
        if self._thread is not None:
            self._thread.join()

    def _launch(self) -> tuple[_Session, list[str]]:
        here, there = socket.socketpair()
        with there:
            try:
                with self._lock:
                    if self._stopping.is_set():
                        raise CannotStart("the node stops")
                    self._starting = _spawn(there)
            except CannotStart:
                here.close()
                raise
        session = _Session(self._starting, here)
        try:
            return session, session.greet(self._first_words)
        except CannotStart:
            session.end()
            raise
        finally:
            with self._lock:
                self._starting = None

    def _attend(self, session: _Session) -> None:
        """Read answers for as long as the process lives, and start it again when it is gone."""
        while True:
            self._session = session
            if self._stopping.is_set():
                session.hang_up()
            session.read_answers()
            self._session = None
            code = session.end(_STOP_TIMEOUT_S if self._stopping.is_set() else 0)
            if self._stopping.is_set():
                return
            logger.error(
                "the JVM of the plug-ins has ended (status %s): what they are asked meanwhile is refused, and it is"
                " started again",
                code,
            )
            again = self._launch_again()
            if again is None:
                return
            for plugin, question in self.first_questions.items():
                again.ask(plugin, question)
            session = again

    def _launch_again(self) -> _Session | None:
        """The next process; None if the node stops before there is one."""
        while not self._stopping.wait(max(0.0, self._restarted + _RESTART_INTERVAL_S - time.monotonic())):
            self._restarted = time.monotonic()
            try:
                session, _ = self._launch()
            except CannotStart as error:
                if not self._stopping.is_set():
                    logger.error("the JVM of the plug-ins cannot be started again, and will be tried later: %s", error)
            else:
                logger.warning("the JVM of the plug-ins is back")
                return session
        return None


def find_java() -> str:
    """The `java` that Kafka's scripts would take: that of `JAVA_HOME`, else of the path. Raises CannotStart."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java in PATH"
        raise CannotStart(f"{where}: install a JDK of version 17 or newer")
    return found


def _spawn(stdin: socket.socket) -> subprocess.Popen[bytes]:
    command = [find_java(), *_OPTIONS, "-cp", os.environ.get("CLASSPATH", ""), str(_SOURCE)]
    try:
        # In a session of its own: Ctrl-C is for the node, which lets the plug-ins close.
        return subprocess.Popen(command, stdin=stdin.fileno(), stdout=_STDERR, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise CannotStart(f"java cannot be run: {error}") from error


class _Session:
    """One process, and the questions that it was asked."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self.process = process
        self._link = link
        self._sending = threading.Lock()
        self._ids = count(1)
        self._waiting: dict[int, Future[Any]] | None = {}
        """None when nobody is left who could answer."""

    def greet(self, first_words: object) -> list[str]:
        """Say which classes are wanted, and hear their names."""
        self._link.settimeout(_START_TIMEOUT_S)
        try:
            self._send(first_words)
            _, status, said = self._receive()
        except TimeoutError:
            raise CannotStart(f"the JVM is not ready after {_START_TIMEOUT_S:.0f} s") from None
        except (EOFError, OSError):
            self.process.wait()
            raise CannotStart(
                f"java ended with status {self.process.returncode}, and said why; it has to be a JDK of version 17 or"
                " newer, a JRE cannot run it"
            ) from None
        if status != _ANSWERED:
            raise CannotStart(said[1], said[0])
        self._link.settimeout(None)
        # A process that was stopped reads nothing: whoever asks it must not wait for that for ever.
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))
        return [str(name) for name in said]

    def ask(self, plugin: int, question: object) -> Future[Any]:
        answer: Future[Any] = Future()
        number = next(self._ids)
        with self._sending:
            if self._waiting is None:
                answer.set_exception(NoAnswer("its JVM has ended, and is being started again"))
                return answer
            self._waiting[number] = answer
            try:
                self._send([number, plugin, question])
            except OSError as error:
                del self._waiting[number]
                answer.set_exception(NoAnswer(f"its JVM takes no questions: {error}"))
                self.process.kill()  # half of a frame may have gone out
        return answer

    def read_answers(self) -> None:
        """Hand out answers until the process is gone."""
        try:
            while True:
                self._hand_out(*self._receive())
        except (EOFError, OSError):
            pass  # it is gone
        except Exception as error:
            logger.error("the JVM of the plug-ins says what cannot be understood, and is ended", exc_info=error)
        with self._sending:
            left, self._waiting = self._waiting, None
        for answer in (left or {}).values():
            if answer.set_running_or_notify_cancel():
                answer.set_exception(NoAnswer("its JVM ended before it answered"))

    def _hand_out(self, number: int, status: int, said: Any) -> None:
        with self._sending:
            assert self._waiting is not None
            answer = self._waiting.pop(number, None)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if status == _ANSWERED:
            answer.set_result(said)
        else:
            answer.set_exception(Refused(said) if status == _REFUSED else Failed(said))

    def hang_up(self) -> None:
        """Ask nothing more; the process then ends by itself."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def end(self, patience_s: float = 0) -> int:
        """Have the process gone; its status."""
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._link.close()
        return self.process.wait()

    def _send(self, value: object) -> None:
        frame = encode(value)
        self._link.sendall(_length.pack(len(frame)) + frame)

    def _receive(self) -> Any:
        (size,) = _length.unpack(self._read(_length.size))
        return decode(self._read(size))

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view, pos = memoryview(data), 0
        while pos < size:
            got = self._link.recv_into(view[pos:])
            if not got:
                raise EOFError
            pos += got
        return bytes(data)
