"""Consumers read from a replica in their rack (KIP-392), or from any replica that they choose."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import NotLeader, UnknownLeaderEpoch
from ottla.protocol.messages.records.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.support.broker import BROKER_EPOCH, Broker
from tests.support.logs_in_memory import batch

RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Leads a partition from rack a, with two followers in rack b that have all three records."""
    broker = Broker()
    broker.node.reads_by_rack = True
    for number, rack in RACKS.items():
        endpoint = BrokerEndpoint(name="PLAINTEXT", host=f"host{number}", port=9000)
        broker.apply(
            RegisterBrokerRecord(
                broker_id=number, broker_epoch=BROKER_EPOCH, end_points=[endpoint], rack=rack, fenced=False
            )
        )
    broker.create_topic("t", replicas=(1, 2, 3))
    broker.append("t", 0, batch(b"1"), batch(b"2"), batch(b"3"))
    for follower in (2, 3):
        broker.partition("t").on_follower_fetch(follower, 3, 0, broker.clock.ms)
    yield broker
    broker.close()


def fetch(broker: Broker, rack: str, *, offset: int = 0, version: int = 12, epoch: int = -1) -> PartitionData:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    request = FetchRequest(
        max_wait_ms=0, session_epoch=-1, rack_id=rack, topics=[FetchTopic(topic="t", partitions=[part])]
    )
    found: PartitionData = broker.ask(request, version).responses[0].partitions[0]
    return found


def test_a_consumer_is_sent_to_the_replica_in_its_rack_that_is_furthest(broker: Broker) -> None:
    broker.append("t", 0, batch(b"4"))
    broker.partition("t").on_follower_fetch(2, 4, 0, broker.clock.ms)
    answer = fetch(broker, "b")
    assert (answer.preferred_read_replica, answer.error_code, answer.high_watermark) == (2, 0, 3)
    assert not answer.records


@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_a_consumer_stays_with_the_leader_if_no_replica_is_nearer(broker: Broker, rack: str) -> None:
    broker.change("t", isr=[1, 2, 3])
    assert fetch(broker, rack, offset=3).preferred_read_replica == -1


def test_only_replicas_count_that_are_in_sync_and_in_service_and_have_the_offset(broker: Broker) -> None:
    broker.change("t", isr=[1, 2])
    assert fetch(broker, "b").preferred_read_replica == 2
    broker.partition("t").on_follower_fetch(2, 3, 2, broker.clock.ms)
    assert fetch(broker, "b", offset=3).preferred_read_replica == 2
    broker.partition("t").on_follower_fetch(2, 2, 0, broker.clock.ms)
    assert fetch(broker, "b", offset=3).preferred_read_replica == -1
    broker.apply(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=BROKER_EPOCH, fenced=1))
    assert fetch(broker, "b", offset=3).preferred_read_replica == -1


def test_a_wrong_epoch_is_reported_first(broker: Broker) -> None:
    assert fetch(broker, "b", epoch=7).error_code == UnknownLeaderEpoch.code


def test_a_follower_serves_consumers_that_may_read_from_it(broker: Broker) -> None:
    broker.change("t", leader=2)
    assert not broker.partition("t").is_leader
    assert fetch(broker, "a", offset=3, version=11).error_code == 0
    assert fetch(broker, "a", offset=3, version=11).high_watermark == 3
    assert fetch(broker, "a", offset=3, version=10).error_code == NotLeader.code, "it does not know of followers"
