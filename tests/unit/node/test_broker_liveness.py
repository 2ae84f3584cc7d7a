"""The monitor ends the sessions of brokers whose connections show that they are dead."""

import asyncio
import socket
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from bench.harness.ports import free_port

from ottla.broker.network.connection import Connection
from ottla.broker.network.request import Request
from ottla.broker.requests.call import Client
from ottla.metadata.consensus.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.node.broker_liveness import BrokerLivenessMonitor
from ottla.node.settings_loader import load_settings
from ottla.protocol.messages.records.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest

SESSION_MS, SHORT_MS, LONG_MS = 9_000, 500, 4_000
NOW_MS = 100_000


class World:
    """An active controller with brokers 2 and 3 in service, on simulated time."""

    controller: Any

    def __init__(
        self,
        *,
        grace_ms: int = SHORT_MS,
        voters: dict[int, int] | None = None,
        port: int = 0,
        own: dict[str, str] | None = None,
        is_own_registration: bool = True,
    ) -> None:
        self.now_ms = NOW_MS
        self.image = image_of(port)
        self.fenced_at_once = 0
        self.controller = SimpleNamespace(
            is_active=True, heartbeats=Heartbeats(SESSION_MS), fence_stale_brokers_now=self._fence_stale_brokers_now
        )
        self.controller.heartbeats.activate(self.image, NOW_MS)
        voter_set = VoterSet.from_voters(
            Voter(ReplicaKey(number), (Endpoint("CONTROLLER", "127.0.0.1", at),))
            for number, at in (voters or {1: 9}).items()
        )
        quorum: Any = SimpleNamespace(consensus=SimpleNamespace(epoch=1, voters=voter_set), listener="CONTROLLER")
        metadata: Any = SimpleNamespace(image=self.image)
        self.spawned: list[Coroutine[Any, Any, None]] = []
        settings = load_settings(None, {"ottla.broker.disconnect.grace.ms": str(grace_ms), **(own or {})})
        runtime: Any = SimpleNamespace(spawn=self.spawned.append, now_ms=lambda: self.now_ms)
        self.monitor = BrokerLivenessMonitor(
            settings,
            self.controller,
            quorum,
            metadata,
            runtime,
            is_own_registration=lambda _: is_own_registration,
        )

    def beat(self, broker: int, connection: Connection, *, epoch: int = 7, software: str = "ottla") -> None:
        client = Client("127.0.0.1", "CONTROLLER")
        client.software_name = software
        request = BrokerHeartbeatRequest(broker_id=broker, broker_epoch=epoch)
        self.controller.heartbeats.record_heartbeat(broker, epoch, 1, self.now_ms)
        exchange = Request(connection, memoryview(b""), 0)
        call: Any = SimpleNamespace(client=client, exchange=exchange)
        self.monitor.on_heartbeat(call, request)
        self.run()

    def _fence_stale_brokers_now(self) -> None:
        assert self.controller.heartbeats.expired_brokers(self.now_ms)
        self.fenced_at_once += 1

    def gone_after(self, ms: int) -> list[int]:
        return sorted(self.controller.heartbeats.expired_brokers(NOW_MS + ms + 1))

    def run(self) -> None:
        """Run the spawned coroutines to their end."""
        while self.spawned:
            asyncio.run(self.spawned.pop(0))

    async def look(self) -> None:
        self.monitor.on_activated()
        (work,) = self.spawned
        await work


def image_of(port: int) -> Image:
    delta = Delta(EMPTY)
    for broker in (2, 3):
        at = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port)
        delta.apply(
            RegisterBrokerRecord(
                broker_id=broker, broker_epoch=7, incarnation_id=bytes(16), end_points=[at], fenced=False
            )
        )
    return delta.finish(offset=1, epoch=1, timestamp=0)


def connection(*, is_closed: bool = False) -> Any:
    return SimpleNamespace(is_closed=is_closed)


def test_a_closed_connection_leaves_a_short_grace_period() -> None:
    world, first = World(), connection()
    world.beat(2, first)
    world.beat(3, connection())
    world.monitor.on_connection_closed(first)
    assert world.gone_after(SHORT_MS - 1) == []
    assert world.gone_after(SHORT_MS) == [2]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_dead_voter_gets_no_grace_period(is_there: bool) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if is_there:
            listening.listen()
        world, first = World(voters={1: 9, 2: listening.getsockname()[1]}), connection()
        world.beat(2, first)
        world.monitor.on_connection_closed(first)
        (knocking,) = world.spawned
        asyncio.run(knocking)
    assert world.gone_after(0) == ([] if is_there else [2])
    assert world.fenced_at_once == (not is_there)
    assert world.gone_after(SHORT_MS) == [2], "unless it is heard of again"


@pytest.mark.parametrize("was_found", [True, False])
def test_a_dead_broker_with_a_trusted_address_gets_no_grace_period(was_found: bool) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        world, first = World(port=listening.getsockname()[1]), connection()
        if was_found:
            listening.listen()
        world.beat(2, first)
    world.monitor.on_connection_closed(first)
    world.run()
    assert world.gone_after(0) == ([2] if was_found else [])
    assert world.fenced_at_once == was_found
    assert world.gone_after(SHORT_MS) == [2], "unless it is heard of again"


def test_a_brokers_address_is_probed_until_it_is_reached() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        world, first = World(port=listening.getsockname()[1]), connection()
        world.beat(2, first)
        listening.listen()
        world.beat(2, first)
        world.beat(2, first)
        listening.accept()[0].close()
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    world.monitor.on_connection_closed(first)
    world.run()
    assert world.gone_after(0) == [2]


def test_another_heartbeat_keeps_the_session() -> None:
    world, first, second = World(), connection(), connection()
    world.beat(2, first)
    world.monitor.on_connection_closed(first)
    world.beat(2, second)
    assert world.gone_after(SESSION_MS - 1) == []
    world.monitor.on_connection_closed(first)
    assert world.gone_after(SESSION_MS - 1) == [], "the connection of before does not count any more"


def test_other_software_gets_a_longer_grace_period() -> None:
    world, first = World(), connection()
    world.beat(2, first, software="apache-kafka-java")
    world.monitor.on_connection_closed(first)
    assert world.gone_after(LONG_MS - 1) == []
    assert world.gone_after(LONG_MS) == [2]


def test_the_connection_of_an_earlier_epoch_does_not_count() -> None:
    world, old = World(), connection()
    world.beat(2, old, epoch=6)
    world.controller.heartbeats.record_heartbeat(2, 7, 1, NOW_MS)
    world.monitor.on_connection_closed(old)
    assert world.gone_after(SESSION_MS - 1) == []


def test_a_connection_that_closed_before_the_decision_counts() -> None:
    world = World()
    world.beat(2, connection(is_closed=True))
    assert world.gone_after(SHORT_MS) == [2]


def test_the_monitor_can_be_disabled() -> None:
    world, first = World(grace_ms=-1), connection()
    world.beat(2, first)
    world.monitor.on_connection_closed(first)
    world.monitor.on_activated()
    assert (world.gone_after(SESSION_MS - 1), world.spawned) == ([], [])


def test_a_new_controller_probes_silent_brokers() -> None:
    """Broker 2 is a voter with a closed port; broker 3 is not a voter and listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        world = World(voters={1: 9, 2: free_port()}, port=port)

        async def scenario() -> None:
            looking = asyncio.ensure_future(world.look())
            while not world.gone_after(SHORT_MS):
                await asyncio.sleep(0.01)
            assert world.gone_after(SHORT_MS) == [2]
            assert world.fenced_at_once == 1
            world.controller.heartbeats.record_heartbeat(3, 7, 1, NOW_MS)
            await asyncio.wait_for(looking, 30)

        asyncio.run(scenario())
    assert world.gone_after(SESSION_MS - 1) == [2]


def test_a_refusal_at_an_untrusted_address_leaves_a_longer_grace_period() -> None:
    world = World(port=free_port())

    async def scenario() -> None:
        looking = asyncio.ensure_future(world.look())
        while len(world.gone_after(LONG_MS)) < 2:
            await asyncio.sleep(0.01)
        world.controller.is_active = False
        await asyncio.wait_for(looking, 30)

    asyncio.run(scenario())
    assert world.gone_after(LONG_MS - 1) == []


@pytest.mark.parametrize("is_active", [True, False])
def test_only_the_active_controller_shortens_sessions(is_active: bool) -> None:
    world, first = World(), connection()
    world.beat(2, first)
    world.controller.is_active = is_active
    world.monitor.on_connection_closed(first)
    assert world.gone_after(SHORT_MS) == ([2] if is_active else [])


@pytest.mark.parametrize("grace_ms", [SHORT_MS, -1])
@pytest.mark.parametrize("is_own_registration", [True, False])
def test_a_new_controller_fences_the_previous_process_of_its_node(is_own_registration: bool, grace_ms: int) -> None:
    """The previous process must be gone, because this one has its directories."""
    world = World(own={"node.id": "2"}, is_own_registration=is_own_registration, grace_ms=grace_ms)
    world.monitor.on_activated()
    assert world.gone_after(0) == ([] if is_own_registration else [2])
    assert world.fenced_at_once == (not is_own_registration)
    for looking in world.spawned:
        looking.close()


def test_a_node_without_a_broker_fences_no_broker_of_its_id() -> None:
    roles = {"process.roles": "controller", "controller.quorum.bootstrap.servers": "127.0.0.1:9"}
    world = World(own={"node.id": "2", **roles}, is_own_registration=False, grace_ms=-1)
    world.monitor.on_activated()
    assert world.gone_after(SESSION_MS - 1) == []
