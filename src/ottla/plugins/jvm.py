"""The JVM beside a node that runs its Java plug-ins.

One process runs them all (`OttlaPlugins.java`). It starts from source, which needs a JDK but no compiled files, with
the class path that Kafka's start scripts use: `CLASSPATH`. Its standard input is a socket for questions and answers.
So output of a plug-in cannot mix with them, and the process ends when the node does, for whatever reason.

A thread reads the answers. When the process ends, pending questions fail at once, and the thread restarts it, at most
once in `_RESTART_INTERVAL_S`. If a plug-in does not answer in time, the process is killed.
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
# A small heap and a fast start: the process has little to do.
_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xms16m")
_START_TIMEOUT_S: Final = 120.0
_SEND_TIMEOUT_S: Final = 5
_STOP_TIMEOUT_S: Final = 8.0
_RESTART_INTERVAL_S: Final = 60.0
_STDERR: Final = 2
_ANSWERED, _REFUSED = 0, 1
_length = struct.Struct(">i")


class CannotStart(Exception):
    """The plug-ins cannot run; `index` is the first that cannot, or None if none can."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.index = index


class NoAnswer(Exception):
    """A plug-in did not receive or answer a question; the message says why."""


class Refused(Exception):
    """A plug-in refused a question, with a message or with a Kafka error code and a message."""


class Failed(Exception):
    """A plug-in raised an unexpected exception."""


class JavaClass(NamedTuple):
    """A Java class to run, with its kind: `create-topic`, `alter-config`, `assignor` or `authorizer`."""

    kind: str
    name: str


class Jvm:
    """The process, restarted when it ends. Questions may come from any thread."""

    def __init__(self, classes: Sequence[JavaClass], settings: Mapping[str, str]) -> None:
        self._first_words = [[list(each) for each in classes], dict(settings)]
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._thread: threading.Thread | None = None
        self._starting: subprocess.Popen[bytes] | None = None
        self.first_questions: dict[int, object] = {}
        """Plug-in → the question to ask it first after each restart."""
        self._restarted = -_RESTART_INTERVAL_S

    @property
    def pid(self) -> int | None:
        """The process id; None while no process answers."""
        session = self._session
        return None if session is None else session.process.pid

    def start(self) -> list[str]:
        """Start the process, which takes a second or two. Return the plug-ins' own names. Raise CannotStart."""
        session, names = self._launch()
        self._session = session
        self._thread = threading.Thread(target=self._attend, args=(session,), name="ottla-plugins", daemon=True)
        self._thread.start()
        return names

    def ask(self, plugin: int, question: object) -> Future[Any]:
        """Ask a plug-in a question. The future fails with Refused, Failed or NoAnswer."""
        session = self._session
        if session is None:
            answer: Future[Any] = Future()
            answer.set_exception(NoAnswer("its JVM has ended, and is being started again"))
            return answer
        return session.ask(plugin, question)

    def give_up(self) -> None:
        """Kill the process, because a plug-in does not answer."""
        session = self._session
        if session is not None:
            session.process.kill()

    def stop(self) -> None:
        """Close the plug-ins and end the process."""
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
        """Read answers while the process runs, and restart it when it ends."""
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
                "the plug-in JVM ended with status %s; restarting it. Requests that need it are refused meanwhile",
                code,
            )
            again = self._launch_again()
            if again is None:
                return
            for plugin, question in self.first_questions.items():
                again.ask(plugin, question)
            session = again

    def _launch_again(self) -> _Session | None:
        """Restart the process; return None if the node stops first."""
        while not self._stopping.wait(max(0.0, self._restarted + _RESTART_INTERVAL_S - time.monotonic())):
            self._restarted = time.monotonic()
            try:
                session, _ = self._launch()
            except CannotStart as error:
                if not self._stopping.is_set():
                    logger.error("cannot restart the plug-in JVM; retrying in %d s: %s", _RESTART_INTERVAL_S, error)
            else:
                logger.warning("the plug-in JVM is running again")
                return session
        return None


def find_java() -> str:
    """Return the `java` of `JAVA_HOME`, else of the path, as Kafka's scripts do. Raise CannotStart."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java in PATH"
        raise CannotStart(f"{where}: install a JDK of version 17 or newer")
    return java


def _spawn(stdin: socket.socket) -> subprocess.Popen[bytes]:
    command = [find_java(), *_OPTIONS, "-cp", os.environ.get("CLASSPATH", ""), str(_SOURCE)]
    try:
        # A separate session, so that Ctrl-C reaches only the node, which then closes the plug-ins.
        return subprocess.Popen(command, stdin=stdin.fileno(), stdout=_STDERR, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise CannotStart(f"java cannot be run: {error}") from error


class _Session:
    """One process, and its pending questions."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self.process = process
        self._link = link
        self._sending = threading.Lock()
        self._ids = count(1)
        self._waiting: dict[int, Future[Any]] | None = {}
        """None once the process has ended."""

    def greet(self, first_words: object) -> list[str]:
        """Send the classes and settings, and return the plug-ins' names."""
        self._link.settimeout(_START_TIMEOUT_S)
        try:
            self._send(first_words)
            _, status, reply = self._receive()
        except TimeoutError:
            raise CannotStart(f"the JVM is not ready after {_START_TIMEOUT_S:.0f} s") from None
        except (EOFError, OSError):
            self.process.wait()
            raise CannotStart(
                f"java ended with status {self.process.returncode}; its output above says why. It must be a JDK 17 or"
                " newer, not a JRE"
            ) from None
        if status != _ANSWERED:
            raise CannotStart(reply[1], reply[0])
        self._link.settimeout(None)
        # A suspended process does not read: sending must time out.
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))
        return [str(name) for name in reply]

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
                answer.set_exception(NoAnswer(f"its JVM accepts no questions: {error}"))
                self.process.kill()  # part of the frame may have been sent
        return answer

    def read_answers(self) -> None:
        """Deliver answers until the process ends."""
        try:
            while True:
                self._hand_out(*self._receive())
        except (EOFError, OSError):
            pass  # the process ended
        except Exception as error:
            logger.error("the plug-in JVM sent an unreadable answer; restarting it", exc_info=error)
        with self._sending:
            left, self._waiting = self._waiting, None
        for answer in (left or {}).values():
            if answer.set_running_or_notify_cancel():
                answer.set_exception(NoAnswer("its JVM ended before it answered"))

    def _hand_out(self, number: int, status: int, reply: Any) -> None:
        with self._sending:
            assert self._waiting is not None
            answer = self._waiting.pop(number, None)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if status == _ANSWERED:
            answer.set_result(reply)
        else:
            answer.set_exception(Refused(reply) if status == _REFUSED else Failed(reply))

    def hang_up(self) -> None:
        """Close the sending side; the process then ends by itself."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def end(self, patience_s: float = 0) -> int:
        """Wait for the process to end, kill it after `patience_s`, and return its status."""
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
