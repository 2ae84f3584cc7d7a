"""Clusters as Kafka's tests ask for them: a folder each, with what is wanted in it, and processes for its nodes."""

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
    """What the nodes are: the commands that format their directories and that run a node."""

    def __init__(
        self,
        format_command: Callable[[list[list[str]]], list[list[str]]],
        serve_command: list[str],
        class_path: str = "",
    ) -> None:
        self.format_command = format_command
        """Takes the arguments for each node."""
        self.serve_command = serve_command
        self.class_path = class_path
        """Where a node finds the plug-ins that tests bring along."""

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
    """One cluster, in a folder that the test has made."""

    def __init__(self, folder: Path, subject: Subject) -> None:
        self._folder = folder
        self._subject = subject
        self._wanted = read_properties(folder / "cluster.properties")
        self._ports: dict[int, int] = {}
        self._controller_ports: dict[int, int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Format and start all nodes; return when they listen."""
        wanted = self._wanted
        if wanted["security"] != "PLAINTEXT":
            raise ClusterFailed(f"security protocol {wanted['security']} is not served yet")
        first = 0 if wanted["combined"] == "true" else FIRST_CONTROLLER
        self._ports = {node: free_port() for node in range(int(wanted["brokers"]))}
        self._controller_ports = {first + number: free_port() for number in range(int(wanted["controllers"]))}
        nodes = sorted({*self._ports, *self._controller_ports}, reverse=True)  # controllers of their own first
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
                "brokers": addresses(self._ports),
                "controllers": addresses(self._controller_ports),
                "broker.ids": ",".join(map(str, self._ports)),
                "controller.ids": ",".join(map(str, self._controller_ports)),
            },
        )

    def stop_broker(self, node: int) -> None:
        """Stop a node in order."""
        process = self._processes.pop(node)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_broker(self, node: int) -> None:
        """Start a node again; return when it listens."""
        self._launch(node)
        self._wait_for(self._ports[node])

    def stop(self) -> None:
        """End everything at once, and remove what the nodes have kept."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        for data in self._folder.glob("data-*"):
            shutil.rmtree(data, ignore_errors=True)

    def _write_settings(self, node: int) -> None:
        wanted, listener = self._wanted, self._wanted["listener"]
        replicas = str(min(3, len(self._ports)))
        settings = {
            "node.id": str(node),
            "log.dirs": ",".join(
                str(self._folder / f"data-{node}" / f"disk-{number}") for number in range(int(wanted["disks"]))
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
        settings |= below(wanted, "all.")
        roles, listeners = [], []
        if node in self._ports:
            roles.append("broker")
            listeners.append(f"{listener}://localhost:{self._ports[node]}")
            settings |= {"advertised.listeners": listeners[0], "inter.broker.listener.name": listener}
        if node in self._controller_ports:
            roles.append("controller")
            listeners.append(f"CONTROLLER://localhost:{self._controller_ports[node]}")
        settings |= {"process.roles": ",".join(roles), "listeners": ",".join(listeners)}
        write_properties(self._settings_file(node), settings | below(wanted, f"node.{node}."))

    def _format(self, nodes: Iterable[int]) -> None:
        features = [
            word for name, level in below(self._wanted, "feature.").items() for word in ("--feature", f"{name}={level}")
        ]
        given = [["-t", CLUSTER_ID, "-c", str(self._settings_file(node))] for node in nodes]
        wanted = [[*rule, "--release-version", self._wanted["release"], *features] for rule in given]
        # Some tests ask for combinations that Kafka's own tool refuses too; they then get the defaults.
        problem = run_all(self._subject.format_command(wanted))
        if problem and run_all(self._subject.format_command([[*rule, "--ignore-formatted"] for rule in given])):
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
        raise ClusterFailed(f"nothing listens on port {port} after {START_TIMEOUT_S} s; see {self._folder}")

    def _settings_file(self, node: int) -> Path:
        return self._folder / f"{node}.properties"


def addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"localhost:{port}" for port in ports.values())


def below(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def run_all(commands: list[list[str]]) -> str:
    """Run commands side by side; what those said that failed."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    told = [each.communicate(timeout=START_TIMEOUT_S)[0].strip() for each in running]
    return "\n".join(words or "failed" for words, each in zip(told, running, strict=True) if each.returncode)


def read_properties(path: Path) -> dict[str, str]:
    """A file that Java has written: one setting a line, with backslashes before what has a meaning."""
    found = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.replace("\\:", ":").replace("\\=", "=").replace("\\#", "#").partition("=")
            found[key.replace("\\ ", " ")] = value.replace("\\\\", "\\")
    return found


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
