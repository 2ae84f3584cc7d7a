"""A cluster of several Ottla nodes, each in its own process.

    with OttlaCluster(tmp_path, nodes=3).running() as cluster:   # each is broker and controller
        ...  # clients can use cluster.address
        cluster.kill(cluster.controller())

    OttlaCluster(tmp_path, roles={1: "controller", 2: "broker", 3: "broker"}, settings={"num.partitions": "3"})

    with Network([1, 2, 3]) as network, OttlaCluster(tmp_path, network=network).running() as cluster:
        network.isolate(1)   # each node has its own host

Nodes are addressed by their ids. Leaving `running` always ends all processes. An error in a node's log fails the test,
unless the cluster has `tolerant=True`.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from bench.harness.ports import free_port

from ottla.cli.main import main
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from tests.chaos.faults.network import Network
from tests.support.ottla_node import CLUSTER_ID, OTTLA, READY, NodeFailed

T = TypeVar("T")

BOTH = "broker,controller"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class ClusterNode:
    """The files, ports and process of a node."""

    stops_without_controller = True
    """Whether it stops on SIGTERM although no controller is left for a controlled shutdown."""
    descriptors: tuple[int, ...] = ()
    """File descriptors that the process inherits."""

    def __init__(self, folder: Path, number: int, roles: str, network: Network | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.id = number
        self.host = "127.0.0.1" if network is None else network.address(number)
        self.command_prefix = () if network is None else network.within(number)
        """The words before the command that run it in the node's network namespace."""
        self.roles = roles
        self.directory = folder / "logs"
        self.log_path = folder / "ottla.log"
        self.properties = folder / "server.properties"
        names = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
        fixed_ports = {"broker": 9092, "controller": 9093}
        self.ports = {names[role]: free_port() if network is None else fixed_ports[role] for role in roles.split(",")}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_broker(self) -> bool:
        return "PLAINTEXT" in self.ports

    @property
    def is_controller(self) -> bool:
        return "CONTROLLER" in self.ports

    @property
    def address(self) -> str:
        return f"{self.host}:{self.ports['PLAINTEXT']}"

    @property
    def controller_address(self) -> str:
        return f"{self.host}:{self.ports['CONTROLLER']}"

    def write_properties(self, settings: Mapping[str, str]) -> None:
        values = {
            "log.dirs": str(self.directory),
            **settings,
            "node.id": str(self.id),
            "process.roles": self.roles,
            "listeners": ",".join(f"{name}://{self.host}:{port}" for name, port in self.ports.items()),
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(self, *more: str) -> None:
        """Format the log directory, in this process."""
        assert main(["format", "-t", CLUSTER_ID, "-c", str(self.properties), *more]) == 0

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        assert self.process is None, f"node {self.id} is already running"
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command_prefix, *self.program(), "serve", str(self.properties), "--verbose"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self.descriptors,
            )

    def program(self) -> Sequence[str]:
        """Return the `ottla` command."""
        return OTTLA

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY not in self.log_path.read_text(errors="replace")[self._log_start :]:
            assert self.process is not None, f"node {self.id} was not started"
            code = self.process.poll()
            if code is not None:
                raise NodeFailed(f"node {self.id} exited with {code}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"node {self.id} is not ready after {START_TIMEOUT_S} s: {self.log_tail()}")
            time.sleep(0.02)

    def end(self, stop_signal: signal.Signals, *, other_exit_codes: tuple[int, ...] = ()) -> None:
        process = self.process
        assert process is not None, f"node {self.id} is not running"
        process.send_signal(stop_signal)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NodeFailed(f"node {self.id} did not stop: {self.log_tail()}") from error
        self.process = None
        if code not in (
            (-stop_signal,) if stop_signal is signal.SIGKILL else (*self.clean_exit_codes, *other_exit_codes)
        ):
            raise NodeFailed(f"node {self.id} exited with {code}: {self.log_tail()}")

    @property
    def clean_exit_codes(self) -> tuple[int, ...]:
        """The exit codes of a clean shutdown."""
        return (0,)

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-8000:]

    def logged_errors(self) -> str:
        """Return the end of the log if it has an error (a bug, whatever happened to the node); otherwise ""."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text[-8000:] if any(mark in text for mark in (" ERROR ", " CRITICAL ", "Traceback")) else ""


class OttlaCluster:
    """Nodes that find each other by `controller.quorum.voters`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        roles: Mapping[int, str] | None = None,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        node_classes: Mapping[int, type[ClusterNode]] | None = None,
        tolerant: bool = False,
        network: Network | None = None,
        broker_listeners: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._network = network
        self._tolerant = tolerant
        self._node_settings: dict[int, Mapping[str, str | None]] = {**(node_settings or {})}
        self.nodes = {
            number: (node_classes or {}).get(number, ClusterNode)(folder / f"node{number}", number, node_roles, network)
            for number, node_roles in (roles or dict.fromkeys(range(1, nodes + 1), BOTH)).items()
        }
        for node in self.nodes.values():
            if node.is_broker:
                node.ports |= {name: free_port() for name in broker_listeners}
        brokers = sum(node.is_broker for node in self.nodes.values())
        controllers = [node for node in self.nodes.values() if node.is_controller]
        self.settings = {
            **SETTINGS,
            "offsets.topic.replication.factor": str(min(brokers, 3)),
            "transaction.state.log.replication.factor": str(min(brokers, 3)),
            "transaction.state.log.min.isr": "1",
            "default.replication.factor": str(min(brokers, 3)),
            "controller.quorum.voters": ",".join(f"{node.id}@{node.controller_address}" for node in controllers),
            **(settings or {}),
        }
        for node in self.nodes.values():
            self._configure(node)

    @property
    def address(self) -> str:
        """The bootstrap servers: all brokers."""
        return ",".join(node.address for node in self.nodes.values() if node.is_broker)

    @property
    def alive(self) -> list[int]:
        """The nodes whose processes run."""
        return [number for number, node in self.nodes.items() if node.process is not None]

    def add(self, number: int, roles: str, *format_options: str, **settings: str) -> ClusterNode:
        """Add a node with options for `ottla format` and settings of its own; format it, but do not start it."""
        node = self.nodes[number] = ClusterNode(self._folder / f"node{number}", number, roles, self._network)
        self._node_settings[number] = settings
        self._configure(node)
        node.format(*format_options)
        return node

    def reconfigure(self, settings: Mapping[str, str | None], *numbers: int) -> None:
        """Change the settings of some or all nodes from their next start on; None removes a setting."""
        if not numbers:
            merged = {**self.settings, **settings}
            self.settings = {name: value for name, value in merged.items() if value is not None}
        for number in numbers:
            self._node_settings[number] = {**self._node_settings.get(number, {}), **settings}
        for node in self.nodes.values():
            self._configure(node)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the nodes: all are ready in the block, and stop after it."""
        try:
            for node in self.nodes.values():
                if not node.directory.exists():
                    node.format()
            self.start(*self.nodes)
            yield self
            self.stop(*self.alive)
        finally:
            for node in self.nodes.values():
                if node.process is not None:
                    node.process.kill()
                    node.process.wait()
        if not self._tolerant:
            for node in self.nodes.values():
                assert not node.logged_errors(), f"node {node.id}: {node.logged_errors()}"

    def start(self, *numbers: int) -> None:
        """Start nodes, and return when they are ready."""
        for number in numbers:
            self.nodes[number].launch()
        for number in numbers:
            self.nodes[number].wait_until_ready()

    def stop(self, *numbers: int) -> None:
        """Shut several nodes down at the same time."""
        running = [self.nodes[number] for number in numbers]
        for node in running:
            assert node.process is not None, f"node {node.id} is not running"
            node.process.send_signal(signal.SIGTERM)
        for node in running:
            self._await_end(node)

    def kill(self, number: int) -> None:
        """Kill a node with SIGKILL."""
        self.nodes[number].end(signal.SIGKILL)

    def restart(self, number: int) -> None:
        """Shut a node down if it runs, and start it again."""
        if self.nodes[number].process is not None:
            self.nodes[number].end(signal.SIGTERM)
        self.start(number)

    def pause(self, number: int) -> None:
        """Send SIGSTOP: the node's connections stay open, but it does not answer."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def controller(self) -> int:
        """Ask the brokers for the node with the active controller."""
        return self.ask(lambda admin: admin.quorum()).leader_id

    def ask(self, call: Callable[[Admin], Awaitable[T]], *, node: int | None = None, timeout_s: float = 30.0) -> T:
        """Return the result of an admin call to one node, or to any running broker."""
        running = [other.address for other in self.nodes.values() if other.is_broker and other.process is not None]
        servers = self.nodes[node].address if node is not None else ",".join(running)

        async def run() -> T:
            async with Cluster(servers, timeout_s=timeout_s) as cluster:
                return await call(Admin(cluster))

        return asyncio.run(run())

    def _configure(self, node: ClusterNode) -> None:
        values = {**self.settings, **self._node_settings.get(node.id, {})}
        node.write_properties({name: value for name, value in values.items() if value is not None})

    def _signal(self, number: int, stop_signal: signal.Signals) -> None:
        process = self.nodes[number].process
        assert process is not None, f"node {number} is not running"
        process.send_signal(stop_signal)

    def _await_end(self, node: ClusterNode) -> None:
        assert node.process is not None
        try:
            code = node.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            if node.stops_without_controller:
                raise NodeFailed(f"node {node.id} did not stop: {node.log_tail()}") from error
            node.process.kill()
            node.process.wait()
            node.process = None
            return
        node.process = None
        if code not in node.clean_exit_codes:
            raise NodeFailed(f"node {node.id} exited with {code}: {node.log_tail()}")


def eventually(holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait until a condition holds; `what` describes it."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)
