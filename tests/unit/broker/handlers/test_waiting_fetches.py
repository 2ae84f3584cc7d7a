"""What ends the wait of a fetch: another leader, another epoch, logs that diverge, enough bytes, its deadline."""

import pytest

from ottla.protocol.errors import NONE, FencedLeaderEpoch, NotLeader, UnknownTopicOrPartition
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from tests.support.broker import BROKER_EPOCH, ME, Broker, Exchange
from tests.support.logs_in_memory import batch

WAIT_MS = 500
OTHER, THIRD = 2, 3
RECORD = batch(b"v" * 100)


@pytest.fixture
def replicated(broker: Broker) -> Broker:
    """Broker 1 leads a partition that brokers 2 and 3 follow."""
    broker.register(OTHER)
    broker.register(THIRD)
    broker.create_topic("t", replicas=(ME, OTHER, THIRD))
    return broker


def fetch(
    broker: Broker,
    *,
    offset: int = 0,
    version: int = 12,
    replica: int = -1,
    min_bytes: int = 1,
    leader_epoch: int = -1,
    last_epoch: int = -1,
) -> Exchange:
    part = FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=offset)
    part.current_leader_epoch, part.last_fetched_epoch = leader_epoch, last_epoch
    topic = FetchTopic(topic="t", topic_id=broker.image.topics["t"].id, partitions=[part])
    request = FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=min_bytes, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
    )
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=replica, replica_epoch=BROKER_EPOCH)
    else:
        request.replica_id = replica
    return broker.send(request, version)


def answer(exchange: Exchange) -> PartitionData:
    found: PartitionData = exchange.response.responses[0].partitions[0]
    return found


@pytest.mark.parametrize(("version", "replica"), [(10, -1), (12, OTHER)])
def test_a_fetch_that_needs_the_leader_is_answered_when_another_broker_leads(
    replicated: Broker, version: int, replica: int
) -> None:
    waiting = fetch(replicated, version=version, replica=replica)
    assert not waiting.outcome
    replicated.change("t", leader=OTHER)
    assert answer(waiting).error_code == NotLeader.code


def test_from_version_16_on_the_answer_names_the_leader(replicated: Broker) -> None:
    waiting = fetch(replicated, version=16, leader_epoch=0)
    replicated.change("t", leader=OTHER)
    assert answer(waiting).error_code == FencedLeaderEpoch.code
    leader = answer(waiting).current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (OTHER, 1)
    assert [each.node_id for each in waiting.response.node_endpoints] == [OTHER]


def test_a_fetch_of_an_earlier_epoch_is_answered_when_the_next_begins(replicated: Broker) -> None:
    waiting = fetch(replicated, leader_epoch=0)
    assert not waiting.outcome
    replicated.change("t", leader=ME)
    assert answer(waiting).error_code == FencedLeaderEpoch.code


def test_a_fetch_is_answered_when_its_topic_is_deleted(replicated: Broker) -> None:
    waiting = fetch(replicated)
    replicated.apply(RemoveTopicRecord(topic_id=replicated.image.topics["t"].id))
    assert answer(waiting).error_code == UnknownTopicOrPartition.code


def test_a_fetch_is_answered_when_enough_bytes_are_replicated(replicated: Broker) -> None:
    waiting = fetch(replicated, min_bytes=2 * len(RECORD))
    for count, follower in ((1, OTHER), (1, THIRD), (2, OTHER)):
        while replicated.log("t").log_end_offset < count:
            replicated.append("t", 0, RECORD)
        replicated.partition("t").on_follower_fetch(follower, count, 0, replicated.clock.ms)
        replicated.completions.run()
        assert not waiting.outcome, "consumers see what all in-sync replicas have"
    replicated.partition("t").on_follower_fetch(THIRD, 2, 0, replicated.clock.ms)
    replicated.completions.run()
    assert (answer(waiting).error_code, answer(waiting).high_watermark) == (NONE, 2)
    assert len(answer(waiting).records or b"") == 2 * len(RECORD), "read again when the wait is over"


def test_a_fetch_is_answered_when_the_logs_diverge(replicated: Broker) -> None:
    replicated.append("t", 0, RECORD, RECORD, RECORD)
    replicated.change("t", leader=ME)
    waiting = fetch(replicated, offset=3, replica=OTHER, leader_epoch=-1, last_epoch=0)
    assert not waiting.outcome
    replicated.logs.truncate({("t", 0): 1}, now_ms=replicated.clock.ms)
    replicated.partition("t").wake_all()
    replicated.completions.run()
    diverging = answer(waiting).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_at_its_deadline_a_fetch_is_answered_with_the_available_records(replicated: Broker) -> None:
    replicated.append("t", 0, RECORD)
    for follower in (OTHER, THIRD):
        replicated.partition("t").on_follower_fetch(follower, 1, 0, replicated.clock.ms)
    waiting = fetch(replicated, min_bytes=1 << 19)
    assert not waiting.outcome
    replicated.clock.pass_time(WAIT_MS + 20)
    assert (answer(waiting).error_code, len(answer(waiting).records or b"")) == (NONE, len(RECORD))
