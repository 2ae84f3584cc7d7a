"""Injects random faults into nodes and network.

injector = FaultInjector(cluster, network, Random(seed), report=print)
injector.inject(until_s)     # faults, one after the other or several at once
injector.repair()            # starts all nodes and heals the network
"""

import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final

from ottla.protocol.errors import ApiError
from tests.chaos.faults.network import CLIENTS, Network
from tests.support.ottla_cluster import ClusterNode, OttlaCluster

_MAX_CONCURRENT_FAULTS: Final = 3
_REQUEST_TIMEOUT_S: Final = 2.0


class FaultInjector:
    """Injects faults, and remembers what to repair."""

    def __init__(
        self, cluster: OttlaCluster, network: Network, random: Random, *, topic: str, report: Callable[[str], None]
    ) -> None:
        self.faults = 0
        self._cluster, self._network, self._random = cluster, network, random
        self._topic, self._report = topic, report
        self._paused: set[int] = set()
        self._unrepaired = 0
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (2, self._lose_machine),
            (3, self._pause),
            (2, self._restart),
            (1, self._roll),
            (1, self._kill_all),
            (3, self._isolate),
            (3, self._cut_off_from_nodes),
            (3, self._cut_one_way),
            (2, self._cut_pair),
            (2, self._cut_at_random),
        ]

    def inject(self, until_s: float) -> None:
        """Inject faults until a time of the monotonic clock. The last one may be repaired slightly later."""
        random = self._random
        weights = [weight for weight, _ in self._actions]
        while time.monotonic() < until_s:
            (_, inject_fault), *_ = random.choices(self._actions, weights)
            inject_fault()
            self.faults += 1
            self._unrepaired += 1
            time.sleep(min(random.uniform(0.2, 8.0), max(until_s - time.monotonic(), 0.2)))
            if self._unrepaired >= _MAX_CONCURRENT_FAULTS or random.random() < 0.7:
                self.repair()
                time.sleep(min(random.uniform(0.2, 6.0), max(until_s - time.monotonic(), 0.0)))

    def repair(self) -> None:
        """Heal the network and start all nodes, without waiting for the cluster to recover."""
        self._network.heal()
        for number in self._paused:
            self._cluster.resume(number)
        self._paused.clear()
        for node in self._cluster.nodes.values():
            if node.process is None:
                node.launch()
        self._unrepaired = 0
        self._report("repaired all faults")

    # -- nodes --

    def _kill(self) -> None:
        node = self._choose_node()
        self._report(f"kill -9 of {self._describe(node)}")
        self._end(node, signal.SIGKILL)
        if self._random.random() < 0.3:
            node.launch()

    def _lose_machine(self) -> None:
        """Kill a node without closing its connections."""
        node = self._choose_node()
        self._report(f"machine of {self._describe(node)} is off")
        self._network.isolate(node.id)
        self._end(node, signal.SIGKILL)

    def _pause(self) -> None:
        node = self._choose_node()
        self._report(f"SIGSTOP of {self._describe(node)}")
        self._cluster.pause(node.id)
        self._paused.add(node.id)

    def _restart(self) -> None:
        node = self._choose_node()
        self._report(f"restart of {self._describe(node)}")
        self._end(node, signal.SIGTERM)
        node.launch()

    def _roll(self) -> None:
        self._report("rolling restart")
        for node in self._running():
            self._end(node, signal.SIGTERM)
            node.launch()
            time.sleep(self._random.uniform(0.5, 4.0))

    def _kill_all(self) -> None:
        self._report("kill -9 of all")
        for node in self._running():
            self._end(node, signal.SIGKILL)

    def _end(self, node: ClusterNode, stop_signal: signal.Signals) -> None:
        if node.id in self._paused:
            self._cluster.resume(node.id)
            self._paused.discard(node.id)
        # A node that has just started does not handle signals yet.
        node.end(stop_signal, other_exit_codes=(-stop_signal,))

    # -- network --

    def _isolate(self) -> None:
        node = self._choose_node()
        self._report(f"{self._describe(node)} is cut off from nodes and clients")
        self._network.isolate(node.id)

    def _cut_off_from_nodes(self) -> None:
        node = self._choose_node()
        self._report(f"{self._describe(node)} is cut off from the other nodes")
        self._network.cut([node.id], self._others(node))

    def _cut_one_way(self) -> None:
        node = self._choose_node()
        if self._random.random() < 0.5:
            self._report(f"{self._describe(node)} receives nothing from the other nodes")
            self._network.block(node.id, sources=self._others(node))
        else:
            self._report(f"{self._describe(node)} reaches none of the other nodes")
            for other in self._others(node):
                self._network.block(other, sources=[node.id])

    def _cut_pair(self) -> None:
        one, other = self._random.sample(sorted(self._cluster.nodes), 2)
        self._report(f"nodes {one} and {other} are cut off from each other")
        self._network.cut([one], [other])

    def _cut_at_random(self) -> None:
        """Cut random links between any two hosts, including clients."""
        hosts = [CLIENTS, *self._cluster.nodes]
        links = [(target, source) for target in hosts for source in hosts if target != source]
        chosen = self._random.sample(links, self._random.randint(1, len(links) // 2))
        self._report("cut links: " + ", ".join(f"{source} to {target}" for target, source in sorted(chosen)))
        for target, source in chosen:
            self._network.block(target, sources=[source])

    # -- choice of nodes --

    def _running(self) -> list[ClusterNode]:
        return [node for node in self._cluster.nodes.values() if node.process is not None]

    def _others(self, node: ClusterNode) -> list[int]:
        return [number for number in self._cluster.nodes if number != node.id]

    def _choose_node(self) -> ClusterNode:
        """Return the active controller, a leader or any node. The node runs."""
        running = self._running()
        if not running:
            self.repair()
            running = self._running()
        preferred: int | None = None
        try:
            match self._random.randrange(3):
                case 0:
                    preferred = self._cluster.ask(lambda admin: admin.quorum(), timeout_s=_REQUEST_TIMEOUT_S).leader_id
                case 1:
                    topic = self._cluster.ask(lambda admin: admin.topic(self._topic), timeout_s=_REQUEST_TIMEOUT_S)
                    leaders = sorted(partition.leader for partition in topic.partitions.values())
                    preferred = self._random.choice(leaders)
        except ApiError:
            pass  # no broker responds at the moment: choose any node
        candidates = [node for node in running if node.id == preferred]
        return self._random.choice(candidates or running)

    def _describe(self, node: ClusterNode) -> str:
        return f"node {node.id} ({node.roles})"
