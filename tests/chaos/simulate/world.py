"""A whole cluster in one thread: nodes on simulated machines, clients and faults, all determined by one seed.

with World(seed=7, controllers=3, brokers=3) as world:
    world.run(scenario(world))      # an async function, on simulated time
"""

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Any, Self

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from tests.chaos.simulate.invariants import Invariants
from tests.chaos.simulate.loop import SimulatedLoop
from tests.chaos.simulate.machine import BROKER_PORT, CONTROLLER_PORT, Machine, simulated_system
from tests.chaos.simulate.network import CLIENTS, Network

CHECK_INTERVAL_S = 0.05
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class World:
    """Machines numbered from 1: the first are controllers, the last brokers, and some may be both."""

    def __init__(self, seed: int, *, controllers: int = 3, brokers: int = 3, combined: bool = True) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop(Random(self.random.random()))
        self.network = Network(self.loop, Random(self.random.random()))
        self.loop.network = self.network
        self.invariants = Invariants()
        self.errors = _ErrorLog()
        self._stack = ExitStack()
        random.seed(seed)
        count = max(controllers, brokers) if combined else controllers + brokers
        self._controllers = [*range(1, controllers + 1)]
        self.broker_ids = [*range(count - brokers + 1, count + 1)]
        self._numbers = [*range(1, count + 1)]
        self.machines: dict[int, Machine] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(simulated_system(self.loop, self.network, Random(self.random.random())))
        logger = logging.getLogger("ottla")
        logger.addHandler(self.errors)
        self._stack.callback(logger.removeHandler, self.errors)
        asyncio.set_event_loop(self.loop)
        self._stack.callback(asyncio.set_event_loop, None)
        for number in self._numbers:
            settings = self._settings(number)
            machine_random = Random(self.random.random())
            self.machines[number] = Machine(number, self.loop, self.network, self.invariants, settings, machine_random)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for machine in self.machines.values():
            if machine.is_up:
                machine.kill()
        self.network.close()
        self._stack.close()
        self.loop.close()

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Start all machines and run a scenario. Fail if a node violates an invariant or logs an error."""
        self.loop.run_until_complete(self._run(scenario))

    async def _run(self, scenario: Coroutine[Any, Any, None]) -> None:
        for machine in self.machines.values():
            machine.start()
        checking, running = asyncio.ensure_future(self._check_repeatedly()), asyncio.ensure_future(scenario)
        done, _ = await asyncio.wait([checking, running], return_when=asyncio.FIRST_COMPLETED)
        checking.cancel()
        running.cancel()
        for task in done:
            task.result()
        self.check()

    async def _check_repeatedly(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(CHECK_INTERVAL_S)

    def check(self) -> None:
        """Check the invariants on all nodes, and that no node has logged an error."""
        assert not self.loop.failures, self.loop.failures
        assert not self.errors.lines, self.errors.lines
        for number, node in self.nodes():
            self.invariants.check_logs(number, node.partitions)

    def nodes(self) -> Iterator[tuple[int, Any]]:
        for number, machine in self.machines.items():
            if machine.node is not None:
                yield number, machine.node

    # -- actions of scenarios --

    @property
    def servers(self) -> str:
        return ",".join(f"node{number}:{BROKER_PORT}" for number in self.broker_ids)

    async def until(self, is_true: Any, condition: str, seconds: float = 120.0) -> None:
        """Wait until a condition is true. Fail after a time."""
        end = self.loop.now_s + seconds
        while not is_true():
            assert self.loop.now_s < end, f"not true after {seconds:g} simulated seconds: {condition}"
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def create(self, topic: str, *, partitions: int, replicas: int = 3) -> None:
        async with Cluster(self.servers, timeout_s=60.0) as cluster:
            await Admin(cluster).create_topic(topic, partitions=partitions, replicas=replicas)

    def cut(self, hosts: list[int], others: list[int]) -> None:
        """Cut the links between two groups of hosts in both directions."""
        self.network.cut |= {(one, other) for one in hosts for other in others if one != other}
        self.network.cut |= {(other, one) for one in hosts for other in others if one != other}

    def repair(self) -> None:
        """Heal the network and start all machines."""
        self.network.heal()
        for machine in self.machines.values():
            if not machine.is_up:
                machine.start()

    def is_healthy(self) -> bool:
        """Whether all nodes serve with current metadata, and all replicas are in sync."""
        images = [node.image for _, node in self.nodes()]
        if len(images) < len(self.machines) or not all(node.is_serving for _, node in self.nodes()):
            return False
        if any(image.offset + 1 < self.invariants.committed_metadata for image in images):
            return False
        return all(
            len(partition.isr) == len(partition.replicas)
            for image in images
            for topic in image.topics.values()
            for partition in topic.partitions
        ) and all(not broker.fenced for image in images for broker in image.brokers.values())

    def hosts(self) -> list[int]:
        return [CLIENTS, *self.machines]

    def _settings(self, number: int) -> dict[str, str]:
        roles, listeners = [], []
        if number in self.broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://node{number}:{BROKER_PORT}")
        if number in self._controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://node{number}:{CONTROLLER_PORT}")
        voters = ",".join(f"{voter}@node{voter}:{CONTROLLER_PORT}" for voter in self._controllers)
        replicas = str(min(3, len(self.broker_ids)))
        settings = {
            **SETTINGS,
            "node.id": str(number),
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": voters,
            "log.dirs": "/logs",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
        }
        if "controller" not in roles:
            del settings["min.insync.replicas"]
        return settings


class _ErrorLog(logging.Handler):
    """Collects the errors that nodes log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
