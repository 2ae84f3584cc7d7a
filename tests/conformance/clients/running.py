"""Client programs as processes: how to build and start each, and what it supports.

    with FRANZ_GO.running() as client:
        client.ask("write", address=node.address, topic="t", records=records)

A test is skipped if its client needs tools that are not installed; the message names them.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.harness.kafka_jars import cached_folder, digest, run, unavailable

from tests.conformance.clients.go_programs import program
from tests.conformance.clients.programs.lines import Answer, Request, answer_of, request_fields

PROGRAMS = Path(__file__).parent / "programs"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ANSWER_TIMEOUT_S = 90
END_TIMEOUT_S = 20


class ClientFailed(Exception):
    """The client failed to do what the test requested; the message has its error."""


class RunningClient:
    """A client program that waits for requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, **fields: Any) -> Answer:
        """Send a request to the program, and return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(ANSWER_TIMEOUT_S, process.kill)
        watch.start()
        try:
            process.stdin.write(json.dumps(request_fields(Request(do, **fields))) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise ClientFailed(f"no answer to {do}: the client exited, or took more than {ANSWER_TIMEOUT_S} s")
        answer = answer_of(json.loads(line))
        if answer.error:
            raise ClientFailed(answer.error)
        return answer


class Client(NamedTuple):
    """A kind of client, and what it supports."""

    name: str
    command: Callable[[], list[str]]
    tools: tuple[str, ...] = ()
    """The tools that must be installed."""
    codecs: tuple[str, ...] = ALL_CODECS
    protocols: tuple[str, ...] = ("classic",)
    """The group protocols."""
    null_header_values: bool = True
    empty_records: bool = True
    """Whether it writes records without key and value."""
    offsets_without_member: bool = True
    """Whether a transaction can commit offsets of a group that the client has not joined."""

    @property
    def is_installed(self) -> bool:
        return all(map(shutil.which, self.tools))

    @contextmanager
    def running(self) -> Iterator[RunningClient]:
        if not self.is_installed:
            pytest.skip(f"{self.name} needs {' and '.join(self.tools)}")
        process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROGRAMS.parents[3]
        )
        try:
            yield RunningClient(process)
        finally:
            try:
                process.communicate(timeout=END_TIMEOUT_S)  # it exits at the end of its input
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


class Programs:
    """The running clients, each started at its first use."""

    def __init__(self, ending: ExitStack) -> None:
        self._ending = ending
        self._running: dict[str, RunningClient] = {}

    def __getitem__(self, client: Client) -> RunningClient:
        running = self._running.get(client.name)
        if running is None or not running.is_alive:
            self._running[client.name] = self._ending.enter_context(client.running())
        return self._running[client.name]


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.conformance.clients.programs.{module}"]


def _go(package: str) -> Callable[[], list[str]]:
    return lambda: [str(program(PROGRAMS / "go", package))]


def _node() -> list[str]:
    folder = PROGRAMS / "kafkajs"
    names = ("package.json", "package-lock.json", ".npmrc", "main.js")

    def make(target: Path) -> None:
        for name in names:
            shutil.copy(folder / name, target)
        problem = run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(target)])
        if problem is not None:
            unavailable(f"packages of npm: {problem}")

    built = cached_folder(f"kafkajs-{digest([folder / name for name in names])}", make)
    return ["node", str(built / "main.js")]


LIBRDKAFKA = Client(
    "librdkafka", _python("librdkafka"), protocols=("classic", "consumer"), offsets_without_member=False
)
KAFKA_PYTHON = Client("kafka-python", _python("kafka_python"), null_header_values=False, empty_records=False)
AIOKAFKA = Client("aiokafka", _python("aio"), empty_records=False)
FRANZ_GO = Client("franz-go", _go("franz"), ("go",), protocols=("classic", "consumer"), offsets_without_member=False)
SARAMA = Client("sarama", _go("sarama"), ("go",))
KAFKAJS = Client("kafkajs", _node, ("node", "npm"), codecs=("none", "gzip", "snappy"), null_header_values=False)
CLIENTS = (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, FRANZ_GO, SARAMA, KAFKAJS)
