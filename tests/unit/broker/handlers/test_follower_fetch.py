"""Followers fetch: how soon they hear how far the log is committed, while there is nothing to copy."""

from collections.abc import Iterator

import pytest

from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.support.broker import BROKER_EPOCH, Broker, Exchange
from tests.support.logs_in_memory import batch

WAIT_MS, SOON_MS = 500, 30
VERSION = 17


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Leads a partition with one record, with two followers."""
    broker = Broker()
    broker.create_topic("t", replicas=(1, 2, 3))
    broker.append("t", 0, batch(b"1"))
    yield broker
    broker.close()


def fetch(broker: Broker, offset: int, epoch: int) -> Exchange:
    """Broker 2 asks for more than there is; with epoch 0 it begins a session, which goes on with the epochs after."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic_id=broker.node.image.topics["t"].id, partitions=[part])
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=BROKER_EPOCH),
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=int(epoch > 0),
        session_epoch=epoch,
        topics=[topic],
    )
    return broker.send(request, VERSION)


def high_watermark_of(exchange: Exchange) -> int:
    high_watermark: int = exchange.response.responses[0].partitions[0].high_watermark
    return high_watermark


def caught_up(broker: Broker) -> Exchange:
    """Broker 2 has all records and knows the high watermark; its next fetch waits."""
    beginning = fetch(broker, 1, 0)
    broker.clock.pass_time(WAIT_MS + 10)
    assert high_watermark_of(beginning) == 0, "broker 3 has nothing yet"
    return fetch(broker, 1, 1)


def test_a_waiting_follower_learns_the_risen_high_watermark_soon(broker: Broker) -> None:
    waiting = caught_up(broker)
    broker.clock.pass_time(100)
    broker.partition("t").on_follower_fetch(3, 1, 0, broker.clock.ms)
    assert not waiting.outcome, "records may arrive, and bring the high watermark"
    expired = broker.node.expirations.follower_fetches
    broker.clock.pass_time(SOON_MS)
    assert high_watermark_of(waiting) == 1
    assert broker.node.expirations.follower_fetches == expired, "its deadline has not come"


def test_a_follower_with_an_old_high_watermark_waits_briefly(broker: Broker) -> None:
    broker.partition("t").on_follower_fetch(3, 1, 0, broker.clock.ms)
    beginning = fetch(broker, 0, 0)
    assert beginning.outcome, "there is a record for it"
    waiting = fetch(broker, 1, 1)
    assert not waiting.outcome
    broker.clock.pass_time(SOON_MS)
    assert high_watermark_of(waiting) == 1


def test_a_follower_with_the_current_high_watermark_waits_its_time(broker: Broker) -> None:
    waiting = caught_up(broker)
    broker.clock.pass_time(WAIT_MS - 10)
    assert not waiting.outcome
    expired = broker.node.expirations.follower_fetches
    broker.clock.pass_time(20)
    assert waiting.response.responses == []
    assert broker.node.expirations.follower_fetches == expired + 1
