"""What is done to nodes and network, by chance and by a seed.

injector = FaultInjector(cluster, network, Random(seed), say=print)
injector.cause(until_s)     # faults, one after the other or several at once
injector.repair()           # everything runs and hears each other again
"""

import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final

from ottla.protocol.errors import ApiError
from tests.chaos.faults.network import CLIENTS, Network
from tests.support.ottla_cluster import ClusterNode, OttlaCluster

_MOST_AT_ONCE: Final = 3
_ASK_S: Final = 2.0


class FaultInjector:
    """Breaks things, and remembers what must be repaired."""

    def __init__(
        self, cluster: OttlaCluster, network: Network, random: Random, *, topic: str, say: Callable[[str], None]
    ) -> None:
        self.faults = 0
        self._cluster, self._network, self._random, self._topic, self._say = cluster, network, random, topic, say
        self._paused: set[int] = set()
        self._broken = 0
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (2, self._lose_machine),
            (3, self._pause),
            (2, self._restart),
            (1, self._roll),
            (1, self._kill_all),
            (3, self._isolate),
            (3, self._cut_off_but_for_clients),
            (3, self._cut_one_way),
            (2, self._cut_pair),
            (2, self._cut_at_random),
        ]

    def cause(self, until_s: float) -> None:
        """Faults until a moment of the monotonic clock; the last one may be repaired a little after it."""
        random = self._random
        weights = [weight for weight, _ in self._acts]
        while time.monotonic() < until_s:
            (_, act), *_ = random.choices(self._acts, weights)
            act()
            self.faults += 1
            self._broken += 1
            time.sleep(min(random.uniform(0.2, 8.0), max(until_s - time.monotonic(), 0.2)))
            if self._broken >= _MOST_AT_ONCE or random.random() < 0.7:
                self.repair()
                time.sleep(min(random.uniform(0.2, 6.0), max(until_s - time.monotonic(), 0.0)))

    def repair(self) -> None:
        """Let everything run and hear each other; does not wait for it to be well."""
        self._network.heal()
        for number in self._paused:
            self._cluster.resume(number)
        self._paused.clear()
        for node in self._cluster.nodes.values():
            if node.process is None:
                node.launch()
        self._broken = 0
        self._say("all is repaired")

    # -- nodes --

    def _kill(self) -> None:
        node = self._somebody()
        self._say(f"kill -9 of {self._describe(node)}")
        self._end(node, signal.SIGKILL)
        if self._random.random() < 0.3:
            node.launch()

    def _lose_machine(self) -> None:
        """No connection is closed: the others only hear nothing any more."""
        node = self._somebody()
        self._say(f"machine of {self._describe(node)} is gone")
        self._network.isolate(node.id)
        self._end(node, signal.SIGKILL)

    def _pause(self) -> None:
        node = self._somebody()
        self._say(f"SIGSTOP of {self._describe(node)}")
        self._cluster.pause(node.id)
        self._paused.add(node.id)

    def _restart(self) -> None:
        node = self._somebody()
        self._say(f"restart of {self._describe(node)}")
        self._end(node, signal.SIGTERM)
        node.launch()

    def _roll(self) -> None:
        self._say("rolling restart")
        for node in self._running():
            self._end(node, signal.SIGTERM)
            node.launch()
            time.sleep(self._random.uniform(0.5, 4.0))

    def _kill_all(self) -> None:
        self._say("kill -9 of all")
        for node in self._running():
            self._end(node, signal.SIGKILL)

    def _end(self, node: ClusterNode, how: signal.Signals) -> None:
        if node.id in self._paused:
            self._cluster.resume(node.id)
            self._paused.discard(node.id)
        # One that has begun a moment ago does not know yet how to stop in order.
        node.end(how, other_exit_codes=(-how,))

    # -- network --

    def _isolate(self) -> None:
        node = self._somebody()
        self._say(f"{self._describe(node)} is cut off from all")
        self._network.isolate(node.id)

    def _cut_off_but_for_clients(self) -> None:
        node = self._somebody()
        self._say(f"{self._describe(node)} is cut off from all other nodes")
        self._network.cut([node.id], self._others(node))

    def _cut_one_way(self) -> None:
        node = self._somebody()
        if self._random.random() < 0.5:
            self._say(f"{self._describe(node)} does not hear the other nodes")
            self._network.deafen(node.id, to=self._others(node))
        else:
            self._say(f"{self._describe(node)} is not heard by the other nodes")
            for other in self._others(node):
                self._network.deafen(other, to=[node.id])

    def _cut_pair(self) -> None:
        one, other = self._random.sample(sorted(self._cluster.nodes), 2)
        self._say(f"{one} and {other} do not hear each other")
        self._network.cut([one], [other])

    def _cut_at_random(self) -> None:
        """Any of the ways between any two hosts, clients included."""
        hosts = [CLIENTS, *self._cluster.nodes]
        ways = [(one, other) for one in hosts for other in hosts if one != other]
        chosen = self._random.sample(ways, self._random.randint(1, len(ways) // 2))
        self._say("not heard: " + ", ".join(f"{other} by {one}" for one, other in sorted(chosen)))
        for one, other in chosen:
            self._network.deafen(one, to=[other])

    # -- who --

    def _running(self) -> list[ClusterNode]:
        return [node for node in self._cluster.nodes.values() if node.process is not None]

    def _others(self, node: ClusterNode) -> list[int]:
        return [number for number in self._cluster.nodes if number != node.id]

    def _somebody(self) -> ClusterNode:
        """The active controller, a leader, or anyone: a node that runs."""
        running = self._running()
        if not running:
            self.repair()
            running = self._running()
        wanted: int | None = None
        try:
            match self._random.randrange(3):
                case 0:
                    wanted = self._cluster.ask(lambda admin: admin.quorum(), timeout_s=_ASK_S).leader_id
                case 1:
                    found = self._cluster.ask(lambda admin: admin.topic(self._topic), timeout_s=_ASK_S)
                    wanted = self._random.choice(sorted(each.leader for each in found.partitions.values()))
        except ApiError:
            pass  # nobody answers for now: then it is anyone's turn
        chosen = [node for node in running if node.id == wanted]
        return self._random.choice(chosen or running)

    def _describe(self, node: ClusterNode) -> str:
        return f"node {node.id} ({node.roles})"
