"""A real Ottla node as a process of its own: one node that is broker and controller at once.

    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        ...  # clients can use node.address

`start` and `stop` are there for tests that end a node in between. Whatever happens, leaving `running` ends the process.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness.ports import free_ports

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20
CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMA"
READY = "is ready at"
OTTLA = (sys.executable, "-m", "ottla")


class NodeFailed(Exception):
    """The node did not start or stop as it should; with its last words."""


class OttlaNode:
    """One Ottla node: its data, its ports, its settings."""

    def __init__(self, folder: Path, settings: Mapping[str, str], more_listeners: Sequence[str] = ()) -> None:
        self.directory = folder / "logs"
        self.words = folder / "ottla.log"
        names = ("PLAINTEXT", "CONTROLLER", *more_listeners)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        values = {
            **settings,
            "log.dirs": str(self.directory),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "controller.quorum.voters": f"{settings['node.id']}@127.0.0.1:{self.ports['CONTROLLER']}",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def format(self, *more: str) -> None:
        """Make the log directory, as an operator does."""
        command = [*OTTLA, "format", "-t", CLUSTER_ID, "-c", str(self._properties), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def running(self, *, end: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """Ottla answers inside; at the end it stops in order, or is killed. It is gone in any case."""
        try:
            self.start()
            yield
            if self._process is not None:
                self.stop(end)
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def start(self) -> None:
        """Start the process, and return when clients can use it."""
        before = self.words.stat().st_size if self.words.exists() else 0
        with self.words.open("ab") as words:
            self._process = subprocess.Popen(
                [*OTTLA, "serve", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY not in self.words.read_text(errors="replace")[before:]:
            code = self._process.poll()
            if code is not None:
                raise NodeFailed(f"Ottla ended with {code}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"Ottla is not ready after {START_TIMEOUT_S} s: {self.last_words()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process: in order, or with SIGKILL."""
        process = self._process
        assert process is not None, "it does not run"
        process.send_signal(how)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NodeFailed(f"Ottla does not stop: {self.last_words()}") from error
        self._process = None
        if code != (-how if how is signal.SIGKILL else 0):
            raise NodeFailed(f"Ottla ended with {code}: {self.last_words()}")

    def last_words(self) -> str:
        """What the node had to say last: warnings, errors and what ended it."""
        return self.words.read_text(errors="replace")[-8000:]

    def complaints(self, since: int = 0) -> str:
        """What it logged from a position of its log on, if there is an error among that: a bug, whatever was asked."""
        with self.words.open("rb") as log:
            log.seek(since)
            words = log.read().decode(errors="replace")
        is_bad = any(mark in words for mark in (" ERROR ", " CRITICAL ", "Traceback"))
        return words if is_bad else ""
