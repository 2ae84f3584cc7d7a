"""Clusters for Kafka's tests: each has a folder with the requested properties, and a process per node."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bench.harness.kafka_jars import java
from bench.harness.ports import free_port

from tests.support.ottla_node import CLUSTER_ID

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
FIRST_CONTROLLER = 3000
JVM_OPTIONS = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ClusterFailed(Exception):
    """A cluster could not be started or stopped."""


class Subject:
    """The implementation under test: the commands that format directories and run a node."""

    def __init__(
        self,
        format_command: Callable[[list[list[str]]], list[list[str]]],
        serve_command: list[str],
        class_path: str = "",
    ) -> None:
        self.format_command = format_command
        """Returns the commands for the format arguments of all nodes."""
        self.serve_command = serve_command
        self.class_path = class_path
        """The class path of plug-ins that tests contain."""

    @classmethod
    def ottla(cls, class_path: str = "") -> "Subject":
        command = [sys.executable, "-m", "ottla"]
        return cls(lambda nodes: [[*command, "format", *node] for node in nodes], [*command, "serve"], class_path)

    @classmethod
    def kafka(cls, class_path: str) -> "Subject":
        command = [str(java()), *JVM_OPTIONS, "-cp", class_path]
        formatting = [*command, "org.apache.kafka.common.test.junit.Formatting"]
        return cls(
            lambda nodes: [[*formatting, *("\n".join(("format", *node)) for node in nodes)]], [*command, "kafka.Kafka"]
        )


class ProcessCluster:
    """A cluster in a folder that the test created."""

    def __init__(self, folder: Path, subject: Subject) -> None:
        self._folder = folder
        self._subject = subject
        self._requested = read_properties(folder / "cluster.properties")
        self._ports: dict[int, int] = {}
        self._controller_ports: dict[int, int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Format and start all nodes, and return when they listen."""
        requested = self._requested
        if requested["security"] != "PLAINTEXT":
            raise ClusterFailed(f"security protocol {requested['security']} is not supported yet")
        first = 0 if requested["combined"] == "true" else FIRST_CONTROLLER
        self._ports = {node: free_port() for node in range(int(requested["brokers"]))}
        self._controller_ports = {first + number: free_port() for number in range(int(requested["controllers"]))}
        nodes = sorted({*self._ports, *self._controller_ports}, reverse=True)  # dedicated controllers first
        for node in nodes:
            self._write_settings(node)
        self._format(nodes)
        for node in nodes:
            self._launch(node)
        for port in (*self._controller_ports.values(), *self._ports.values()):
            self._wait_for(port)
        write_properties(
            self._folder / "endpoints.properties",
            {
                "brokers": join_addresses(self._ports),
                "controllers": join_addresses(self._controller_ports),
                "broker.ids": ",".join(map(str, self._ports)),
                "controller.ids": ",".join(map(str, self._controller_ports)),
            },
        )

    def stop_broker(self, node: int) -> None:
        """Shut a node down."""
        process = self._processes.pop(node)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_broker(self, node: int) -> None:
        """Start a node again, and return when it listens."""
        self._launch(node)
        self._wait_for(self._ports[node])

    def stop(self) -> None:
        """Kill all nodes, and delete their data."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        for data in self._folder.glob("data-*"):
            shutil.rmtree(data, ignore_errors=True)

    def _write_settings(self, node: int) -> None:
        requested, listener = self._requested, self._requested["listener"]
        replicas = str(min(3, len(self._ports)))
        settings = {
            "node.id": str(node),
            "log.dirs": ",".join(
                str(self._folder / f"data-{node}" / f"disk-{number}") for number in range(int(requested["disks"]))
            ),
            "controller.quorum.voters": ",".join(
                f"{voter}@localhost:{port}" for voter, port in self._controller_ports.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{listener}:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "group.initial.rebalance.delay.ms": "0",
            "unstable.feature.versions.enable": "true",
            "unstable.api.versions.enable": "true",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            settings |= {f"{topic}.num.partitions": "5", f"{topic}.replication.factor": replicas}
        settings |= settings_below(requested, "all.")
        roles, listeners = [], []
        if node in self._ports:
            roles.append("broker")
            listeners.append(f"{listener}://localhost:{self._ports[node]}")
            settings |= {"advertised.listeners": listeners[0], "inter.broker.listener.name": listener}
        if node in self._controller_ports:
            roles.append("controller")
            listeners.append(f"CONTROLLER://localhost:{self._controller_ports[node]}")
        settings |= {"process.roles": ",".join(roles), "listeners": ",".join(listeners)}
        write_properties(self._settings_file(node), settings | settings_below(requested, f"node.{node}."))

    def _format(self, nodes: Iterable[int]) -> None:
        features = [
            word
            for name, level in settings_below(self._requested, "feature.").items()
            for word in ("--feature", f"{name}={level}")
        ]
        options = [["-t", CLUSTER_ID, "-c", str(self._settings_file(node))] for node in nodes]
        requested = [[*node, "--release-version", self._requested["release"], *features] for node in options]
        # Some tests request combinations that Kafka's tool refuses too; they then get the defaults.
        problem = run_all(self._subject.format_command(requested))
        if problem and run_all(self._subject.format_command([[*node, "--ignore-formatted"] for node in options])):
            raise ClusterFailed(f"the nodes cannot be formatted: {problem}")

    def _launch(self, node: int) -> None:
        with (self._folder / f"{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [*self._subject.serve_command, str(self._settings_file(node))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8", "CLASSPATH": self._subject.class_path},
            )

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("localhost", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise ClusterFailed(f"no node listens on port {port} after {START_TIMEOUT_S} s; see {self._folder}")

    def _settings_file(self, node: int) -> Path:
        return self._folder / f"{node}.properties"


def join_addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"localhost:{port}" for port in ports.values())


def settings_below(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings whose names start with a prefix, without the prefix."""
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def run_all(commands: list[list[str]]) -> str:
    """Run commands in parallel, and return the output of those that failed."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    outputs = [process.communicate(timeout=START_TIMEOUT_S)[0].strip() for process in running]
    return "\n".join(output or "failed" for output, process in zip(outputs, running, strict=True) if process.returncode)


def read_properties(path: Path) -> dict[str, str]:
    """Read a file that Java wrote, with a setting per line and backslashes before special characters."""
    settings = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.replace("\\:", ":").replace("\\=", "=").replace("\\#", "#").partition("=")
            settings[key.replace("\\ ", " ")] = value.replace("\\\\", "\\")
    return settings


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
