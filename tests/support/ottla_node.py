"""A real Ottla node in its own process, broker and controller at once.

    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        ...  # clients can use node.address

`start` and `stop` are for tests that restart a node. Leaving `running` always ends the process.
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
    """The node failed to start or stop; the message has the end of its log."""


class OttlaNode:
    """An Ottla node: its data, ports and settings."""

    def __init__(self, folder: Path, settings: Mapping[str, str], more_listeners: Sequence[str] = ()) -> None:
        self.directory = folder / "logs"
        self.log_path = folder / "ottla.log"
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
        """Format the log directory, as an operator does."""
        command = [*OTTLA, "format", "-t", CLUSTER_ID, "-c", str(self._properties), *more]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        assert finished.returncode == 0, finished.stdout + finished.stderr

    @contextmanager
    def running(self, *, end: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """Run Ottla: it is ready in the block, and gets the signal `end` after it. No process outlives the block."""
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
        """Start the process, and return when it is ready for clients."""
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*OTTLA, "serve", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY not in self.log_path.read_text(errors="replace")[log_start:]:
            code = self._process.poll()
            if code is not None:
                raise NodeFailed(f"Ottla exited with {code}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"Ottla is not ready after {START_TIMEOUT_S} s: {self.log_tail()}")
            time.sleep(0.02)

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Shut the node down, or kill it with SIGKILL."""
        process = self._process
        assert process is not None, "the node is not running"
        process.send_signal(stop_signal)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NodeFailed(f"Ottla did not stop: {self.log_tail()}") from error
        self._process = None
        if code != (-stop_signal if stop_signal is signal.SIGKILL else 0):
            raise NodeFailed(f"Ottla exited with {code}: {self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of the log: warnings, errors, and why the node exited."""
        return self.log_path.read_text(errors="replace")[-8000:]

    def logged_errors(self, since: int = 0) -> str:
        """Return the log from a position on if it has an error (a bug, whatever clients sent); otherwise ""."""
        with self.log_path.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        has_error = any(mark in text for mark in (" ERROR ", " CRITICAL ", "Traceback"))
        return text if has_error else ""
