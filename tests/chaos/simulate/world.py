"""A whole cluster in one thread: nodes on simulated machines, clients, and what may go wrong, all by one seed.

with World(seed=7, controllers=3, brokers=3) as world:
    world.run(story(world))      # an async function, on simulated time
"""

import asyncio
import logging
import random as common_random
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Any, Self

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from tests.chaos.simulate.loop import SimulatedLoop
from tests.chaos.simulate.machine import BROKER_PORT, CONTROLLER_PORT, Machine, simulated_system
from tests.chaos.simulate.network import CLIENTS, Network
from tests.chaos.simulate.promises import Promises

LOOK_EVERY_S = 0.05
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
    "group.initial.rebalance.delay.ms": "0",
}


class World:
    """Machines numbered from 1: the first are controllers, the last brokers, and some may be both."""

    def __init__(self, seed: int, *, controllers: int = 3, brokers: int = 3, combined: bool = True) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop(Random(self.random.random()))
        self.network = Network(self.loop, Random(self.random.random()))
        self.loop.network = self.network
        self.promises = Promises()
        self.complaints = _Complaints()
        self._stack = ExitStack()
        common_random.seed(seed)
        count = max(controllers, brokers) if combined else controllers + brokers
        self._controllers = [*range(1, controllers + 1)]
        self.broker_ids = [*range(count - brokers + 1, count + 1)]
        self._numbers = [*range(1, count + 1)]
        self.machines: dict[int, Machine] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(simulated_system(self.loop, self.network, Random(self.random.random())))
        logger = logging.getLogger("ottla")
        logger.addHandler(self.complaints)
        self._stack.callback(logger.removeHandler, self.complaints)
        asyncio.set_event_loop(self.loop)
        self._stack.callback(asyncio.set_event_loop, None)
        for number in self._numbers:
            settings = self._settings(number)
            chance = Random(self.random.random())
            self.machines[number] = Machine(number, self.loop, self.network, self.promises, settings, chance)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for machine in self.machines.values():
            if machine.is_up:
                machine.kill()
        self.network.close()
        self._stack.close()
        self.loop.close()

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Live through a story; fails if a node has met an error that it did not expect."""
        self.loop.run_until_complete(self._live(story))

    async def _live(self, story: Coroutine[Any, Any, None]) -> None:
        for machine in self.machines.values():
            machine.start()
        looking, telling = asyncio.ensure_future(self._look()), asyncio.ensure_future(story)
        done, _ = await asyncio.wait([looking, telling], return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        telling.cancel()
        for each in done:
            each.result()
        self.look()

    async def _look(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Hold all nodes against what was promised."""
        assert not self.loop.failures, self.loop.failures
        assert not self.complaints.found, self.complaints.found
        for number, node in self.nodes():
            self.promises.logs(number, node.partitions)

    def nodes(self) -> Iterator[tuple[int, Any]]:
        for number, machine in self.machines.items():
            if machine.node is not None:
                yield number, machine.node

    # -- what stories do --

    @property
    def servers(self) -> str:
        return ",".join(f"node{number}:{BROKER_PORT}" for number in self.broker_ids)

    async def until(self, holds: Any, what: str, seconds: float = 120.0) -> None:
        end = self.loop.now_s + seconds
        while not holds():
            assert self.loop.now_s < end, f"after {seconds:g} simulated seconds still not: {what}"
            await asyncio.sleep(LOOK_EVERY_S)

    async def create(self, topic: str, *, partitions: int, replicas: int = 3) -> None:
        async with Cluster(self.servers, timeout_s=60.0) as cluster:
            await Admin(cluster).create_topic(topic, partitions=partitions, replicas=replicas)

    def cut(self, some: list[int], others: list[int]) -> None:
        """Both ways."""
        self.network.cut |= {(one, other) for one in some for other in others if one != other}
        self.network.cut |= {(other, one) for one in some for other in others if one != other}

    def repair(self) -> None:
        self.network.heal()
        for machine in self.machines.values():
            if not machine.is_up:
                machine.start()

    def all_well(self) -> bool:
        """Whether all nodes serve, know the same, and all replicas are in sync."""
        images = [node.image for _, node in self.nodes()]
        if len(images) < len(self.machines) or not all(node.is_serving for _, node in self.nodes()):
            return False
        if any(image.offset + 1 < self.promises.committed_metadata for image in images):
            return False
        return all(
            len(partition.isr) == len(partition.replicas)
            for image in images
            for topic in image.topics.values()
            for partition in topic.partitions
        ) and all(not broker.fenced for image in images for broker in image.brokers.values())

    def everybody(self) -> list[int]:
        return [CLIENTS, *self.machines]

    def _settings(self, number: int) -> dict[str, str]:
        roles, listeners = [], []
        if number in self.broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://node{number}:{BROKER_PORT}")
        if number in self._controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://node{number}:{CONTROLLER_PORT}")
        voters = ",".join(f"{each}@node{each}:{CONTROLLER_PORT}" for each in self._controllers)
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


class _Complaints(logging.Handler):
    """What nodes log as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))
