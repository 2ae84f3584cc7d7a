"""The client processes of a soak: librdkafka clients in Python, Kafka's Java clients in a JVM."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from bench.harness.kafka_jars import cached_folder, class_path, compile_java, digest, java, kafka_libs

STOP_S: Final = 200.0
_STACK_DUMP_S: Final = 2.0
_JAVA_SOURCES: Final = sorted((Path(__file__).parent / "java").glob("*.java"))
_JVM_OPTIONS: Final = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

WRITERS: Final = ("producer:rd-1", "hasty-producer:rd-2", "transactional:rd-tx-1", "transactional:rd-tx-2")
READERS: Final = ("plain-reader:rd-plain", "tx-reader:rd-tx")
MEMBERS: Final = ("classic-member:rd-m1", "classic-member:rd-m2", "consumer-member:rd-m3", "copier:rd-copier")
"""Each runs in its own process, which the soak kills and replaces."""
JAVA_WRITERS: Final = ("producer:j-1", "hasty-producer:j-2", "transactional:j-tx")
JAVA_OTHERS: Final = (
    "tx-reader:j-reader",
    "consumer-member:j-m1",
    "consumer-member:j-m2",
    "classic-member:j-m3",
    "copier:j-copier",
)


class ClientFailed(Exception):
    """A client failed, or did not stop."""


class ClientProcesses:
    """All clients of a soak. Writers stop before the others."""

    def __init__(self, folder: Path, servers: str, seed: int, *, with_java: bool) -> None:
        self._folder = folder
        self._arguments = [str(folder), servers, str(seed)]
        self._writers: list[subprocess.Popen[bytes]] = []
        self._others: list[subprocess.Popen[bytes]] = []
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._with_java = with_java

    def start(self) -> None:
        self._writers.append(self._python(WRITERS))
        self._others.append(self._python(READERS))
        for member in MEMBERS:
            self._members[member] = self._python([member])
        if self._with_java:
            self._writers.append(self._java(JAVA_WRITERS))
            self._others.append(self._java(JAVA_OTHERS))

    def replace_one(self, random: Random) -> str:
        """Kill a member of a group, start it again, and return its name."""
        member = random.choice(sorted(self._members))
        _kill(self._members[member])
        self._members[member] = self._python([member])
        return member

    def check_alive(self) -> None:
        for process in (*self._writers, *self._others, *self._members.values()):
            if process.poll() is not None:
                raise ClientFailed(f"{process.args!r} ended with {process.returncode}; see {self._folder}")

    def stop_writers(self) -> None:
        _stop(self._writers)

    def stop_others(self) -> None:
        _stop([*self._others, *self._members.values()])

    def close(self) -> None:
        """Kill all processes that still run."""
        for process in (*self._writers, *self._others, *self._members.values()):
            _kill(process)

    def _python(self, roles: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, "-m", "tests.chaos.soak.clients", *self._arguments, *roles], "python")

    def _java(self, roles: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._start(
            [str(java()), *_JVM_OPTIONS, "-cp", java_path(), "SoakClients", *self._arguments, *roles], "java"
        )

    def _start(self, command: list[str], log_name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{log_name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[3],
                env={**os.environ, "LANG": "C.UTF-8"},
            )


def java_path() -> str:
    """Return the class path of the Java clients, which are compiled if necessary."""
    name = f"soak-clients-{digest(_JAVA_SOURCES)}"
    compiled = cached_folder(name, lambda folder: compile_java(kafka_libs(), folder, _JAVA_SOURCES))
    return f"{compiled}{os.pathsep}{class_path()}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _dump_stacks(process: subprocess.Popen[bytes]) -> None:
    """Let a process write the stacks of its threads to its log."""
    process.send_signal(signal.SIGQUIT if _is_java(process) else signal.SIGUSR1)
    time.sleep(_STACK_DUMP_S)


def _is_java(process: subprocess.Popen[bytes]) -> bool:
    return "SoakClients" in str(process.args)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Stop Python processes with a signal, and Java processes by closing their standard input."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        if not _is_java(process):
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            _dump_stacks(process)
            raise ClientFailed(f"{process.args!r} does not stop; the stacks of its threads are in its log") from error
        if code:
            raise ClientFailed(f"{process.args!r} ended with {code}")
