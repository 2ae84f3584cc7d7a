"""Several Ottla nodes as one cluster, each a process of its own.

    with OttlaCluster(tmp_path, nodes=3).running() as cluster:   # three that are broker and controller at once
        ...  # clients can use cluster.address
        cluster.kill(cluster.controller())

    OttlaCluster(tmp_path, roles={1: "controller", 2: "broker", 3: "broker"}, settings={"num.partitions": "3"})

    with Network([1, 2, 3]) as network, OttlaCluster(tmp_path, network=network).running() as cluster:
        network.isolate(1)   # each node is on a host of its own

Nodes are known by their ids. Whatever happens, leaving `running` ends all processes; an error that a node logged fails
the test, unless the cluster was made with `tolerant=True`.
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
    """One node's files, ports and process."""

    stops_without_controller = True
    """Whether it ends when it is told to and no controller is left to let it go."""
    descriptors: tuple[int, ...] = ()
    """Those that the process inherits."""

    def __init__(self, folder: Path, number: int, roles: str, network: Network | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.id = number
        self.host = "127.0.0.1" if network is None else network.address(number)
        self.within = () if network is None else network.within(number)
        """What its command begins with, so that it runs where it should."""
        self.roles = roles
        self.directory = folder / "logs"
        self.words = folder / "ottla.log"
        self.properties = folder / "server.properties"
        names = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
        wanted = {"broker": 9092, "controller": 9093}
        self.ports = {names[role]: free_port() if network is None else wanted[role] for role in roles.split(",")}
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
        """As an operator does, but without a process for it."""
        assert main(["format", "-t", CLUSTER_ID, "-c", str(self.properties), *more]) == 0

    def launch(self) -> None:
        """Start the process, and do not wait for it to be ready."""
        assert self.process is None, "it runs already"
        self._before = self.words.stat().st_size if self.words.exists() else 0
        with self.words.open("ab") as words:
            self.process = subprocess.Popen(
                [*self.within, *self.program(), "serve", str(self.properties), "--verbose"],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                pass_fds=self.descriptors,
            )

    def program(self) -> Sequence[str]:
        """The `ottla` command, as it is started."""
        return OTTLA

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY not in self.words.read_text(errors="replace")[self._before :]:
            assert self.process is not None, "it was not started"
            code = self.process.poll()
            if code is not None:
                raise NodeFailed(f"node {self.id} ended with {code}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"node {self.id} is not ready after {START_TIMEOUT_S} s: {self.last_words()}")
            time.sleep(0.02)

    def end(self, how: signal.Signals, *, also_good: tuple[int, ...] = ()) -> None:
        process = self.process
        assert process is not None, "it does not run"
        process.send_signal(how)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NodeFailed(f"node {self.id} does not stop: {self.last_words()}") from error
        self.process = None
        if code not in ((-how,) if how is signal.SIGKILL else (*self.good_codes, *also_good)):
            raise NodeFailed(f"node {self.id} ended with {code}: {self.last_words()}")

    @property
    def good_codes(self) -> tuple[int, ...]:
        """How the process ends when it stopped in order."""
        return (0,)

    def last_words(self) -> str:
        return self.words.read_text(errors="replace")[-8000:]

    def complaints(self) -> str:
        """What it logged, if there is an error among that: a bug, whatever was done to it."""
        words = self.words.read_text(errors="replace") if self.words.exists() else ""
        return words[-8000:] if any(mark in words for mark in (" ERROR ", " CRITICAL ", "Traceback")) else ""


class OttlaCluster:
    """Nodes that know each other by `controller.quorum.voters`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        roles: Mapping[int, str] | None = None,
        settings: Mapping[str, str] | None = None,
        of_node: Mapping[int, Mapping[str, str]] | None = None,
        kinds: Mapping[int, type[ClusterNode]] | None = None,
        tolerant: bool = False,
        network: Network | None = None,
        broker_listeners: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._network = network
        self._tolerant = tolerant
        self._of_node: dict[int, Mapping[str, str | None]] = {**(of_node or {})}
        self.nodes = {
            number: (kinds or {}).get(number, ClusterNode)(folder / f"node{number}", number, its, network)
            for number, its in (roles or dict.fromkeys(range(1, nodes + 1), BOTH)).items()
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
            "controller.quorum.voters": ",".join(f"{each.id}@{each.controller_address}" for each in controllers),
            **(settings or {}),
        }
        for node in self.nodes.values():
            self._configure(node)

    @property
    def address(self) -> str:
        """All brokers, for clients."""
        return ",".join(node.address for node in self.nodes.values() if node.is_broker)

    @property
    def alive(self) -> list[int]:
        """The nodes whose processes run."""
        return [number for number, node in self.nodes.items() if node.process is not None]

    def add(self, number: int, roles: str, *how: str, **settings: str) -> ClusterNode:
        """One more node, formatted but not started; with what to tell `ottla format`, and settings of its own."""
        node = self.nodes[number] = ClusterNode(self._folder / f"node{number}", number, roles, self._network)
        self._of_node[number] = settings
        self._configure(node)
        node.format(*how)
        return node

    def reconfigure(self, settings: Mapping[str, str | None], *numbers: int) -> None:
        """Change the settings of nodes, or of all; None leaves a setting out. They come into force with a start."""
        if not numbers:
            merged = {**self.settings, **settings}
            self.settings = {name: value for name, value in merged.items() if value is not None}
        for number in numbers:
            self._of_node[number] = {**self._of_node.get(number, {}), **settings}
        for node in self.nodes.values():
            self._configure(node)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """All nodes are ready inside; at the end they are gone."""
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
                assert not node.complaints(), f"node {node.id}: {node.complaints()}"

    def start(self, *numbers: int) -> None:
        """Start nodes, and return when they are ready."""
        for number in numbers:
            self.nodes[number].launch()
        for number in numbers:
            self.nodes[number].wait_until_ready()

    def stop(self, *numbers: int) -> None:
        """Stop nodes in order, all at once."""
        running = [self.nodes[number] for number in numbers]
        for node in running:
            assert node.process is not None, f"node {node.id} does not run"
            node.process.send_signal(signal.SIGTERM)
        for node in running:
            self._await_end(node)

    def kill(self, number: int) -> None:
        """kill -9."""
        self.nodes[number].end(signal.SIGKILL)

    def restart(self, number: int) -> None:
        """Stop a node in order, if it runs, and start it again."""
        if self.nodes[number].process is not None:
            self.nodes[number].end(signal.SIGTERM)
        self.start(number)

    def pause(self, number: int) -> None:
        """SIGSTOP: its connections stay, and it says nothing."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def controller(self) -> int:
        """The node with the active controller, as the brokers tell."""
        return self.ask(lambda admin: admin.quorum()).leader_id

    def ask(self, call: Callable[[Admin], Awaitable[T]], *, at: int | None = None, timeout_s: float = 30.0) -> T:
        """What an admin call gives, asked at one broker or at any that runs."""
        brokers = [node for node in self.nodes.values() if node.is_broker and node.process is not None]
        servers = self.nodes[at].address if at is not None else ",".join(node.address for node in brokers)

        async def run() -> T:
            async with Cluster(servers, timeout_s=timeout_s) as cluster:
                return await call(Admin(cluster))

        return asyncio.run(run())

    def _configure(self, node: ClusterNode) -> None:
        values = {**self.settings, **self._of_node.get(node.id, {})}
        node.write_properties({name: value for name, value in values.items() if value is not None})

    def _signal(self, number: int, how: signal.Signals) -> None:
        process = self.nodes[number].process
        assert process is not None, f"node {number} does not run"
        process.send_signal(how)

    def _await_end(self, node: ClusterNode) -> None:
        assert node.process is not None
        try:
            code = node.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            if node.stops_without_controller:
                raise NodeFailed(f"node {node.id} does not stop: {node.last_words()}") from error
            node.process.kill()
            node.process.wait()
            node.process = None
            return
        node.process = None
        if code not in node.good_codes:
            raise NodeFailed(f"node {node.id} ended with {code}: {node.last_words()}")


def eventually(holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"after {timeout_s:g} s still not: {what}"
        time.sleep(0.05)
