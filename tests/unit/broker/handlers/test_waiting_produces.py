"""A produce with acks=all waits for its replicas; what decides each of its partitions, and what it keeps meanwhile."""

import gc

import pytest

from ottla.protocol.errors import (
    NONE,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import ConfigRecord, RemoveTopicRecord
from ottla.protocol.messages.rpc.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker import ME, Broker, Exchange
from tests.support.logs_in_memory import batch

WAIT_MS = 300
OTHER = 2


@pytest.fixture
def replicated(broker: Broker) -> Broker:
    """Broker 1 leads both partitions of a topic that broker 2 follows."""
    broker.register(OTHER)
    broker.create_topic("t", partitions=2, replicas=(ME, OTHER))
    return broker


def produce(broker: Broker, *partitions: int, acks: int = -1, version: int = 10) -> Exchange:
    parts = [PartitionProduceData(index=number, records=bytes(batch(b"v" * 1000))) for number in partitions]
    topic = TopicProduceData(name="t", partition_data=parts)
    return broker.send(ProduceRequest(acks=acks, timeout_ms=WAIT_MS, topic_data=[topic]), version)


def catch_up(broker: Broker, number: int) -> None:
    end = broker.log("t", number).log_end_offset
    broker.partition("t", number).on_follower_fetch(OTHER, end, 0, broker.clock.ms)
    broker.completions.run()


def answers(exchange: Exchange) -> list[PartitionProduceResponse]:
    found: list[PartitionProduceResponse] = exchange.response.responses[0].partition_responses
    return found


def codes(exchange: Exchange) -> list[int]:
    return [each.error_code for each in answers(exchange)]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_produce_with_acks_1_does_not_wait(replicated: Broker, acks: int) -> None:
    assert produce(replicated, 0, acks=acks).outcome == ("answered" if acks else "not answered")
    assert len(replicated.node.timer) == 0


def test_one_answer_goes_out_when_all_partitions_are_replicated(replicated: Broker) -> None:
    waiting = produce(replicated, 0, 1)
    catch_up(replicated, 1)
    assert not waiting.outcome
    catch_up(replicated, 0)
    assert codes(waiting) == [NONE, NONE]
    assert [each.base_offset for each in answers(waiting)] == [0, 0]
    assert len(replicated.node.timer) == 0


def test_partitions_that_fail_at_once_wait_for_those_that_do_not(replicated: Broker) -> None:
    waiting = produce(replicated, 0, 7)
    assert not waiting.outcome
    catch_up(replicated, 0)
    assert codes(waiting) == [NONE, UnknownTopicOrPartition.code]


def test_a_produce_that_wrote_nothing_does_not_wait(replicated: Broker) -> None:
    assert codes(produce(replicated, 7, 8)) == [UnknownTopicOrPartition.code] * 2
    assert len(replicated.node.timer) == 0


def test_at_its_deadline_partitions_that_are_not_replicated_have_timed_out(replicated: Broker) -> None:
    waiting = produce(replicated, 0, 1)
    catch_up(replicated, 1)
    replicated.clock.pass_time(WAIT_MS + 20)
    assert codes(waiting) == [RequestTimedOut.code, NONE]


def test_a_partition_that_another_broker_leads_at_the_deadline_is_refused_with_its_leader(replicated: Broker) -> None:
    waiting = produce(replicated, 0)
    replicated.change("t", 0, leader=OTHER, isr=[OTHER])
    (answer,) = answers(waiting)
    assert answer.error_code == NotLeader.code
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 1)
    assert [each.node_id for each in waiting.response.node_endpoints] == [OTHER]


def test_versions_before_10_do_not_get_the_leader(replicated: Broker) -> None:
    waiting = produce(replicated, 0, version=9)
    replicated.change("t", 0, leader=OTHER, isr=[OTHER])
    assert codes(waiting) == [NotLeader.code]
    assert not waiting.response.node_endpoints


def test_a_partition_that_is_no_longer_assigned_to_this_broker_is_refused(replicated: Broker) -> None:
    waiting = produce(replicated, 0)
    replicated.change("t", 0, leader=OTHER, isr=[OTHER], replicas=[OTHER], directories=[bytes(16)])
    assert not replicated.partitions.has("t", 0)
    assert codes(waiting) == [NotLeader.code]


def test_a_partition_of_a_deleted_topic_is_unknown(replicated: Broker) -> None:
    waiting = produce(replicated, 0)
    replicated.apply(RemoveTopicRecord(topic_id=replicated.image.topics["t"].id))
    assert codes(waiting) == [UnknownTopicOrPartition.code]


def test_a_batch_that_is_replicated_when_too_few_replicas_are_in_sync_is_refused_after_the_append(
    replicated: Broker,
) -> None:
    replicated.apply(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"))
    waiting = produce(replicated, 0)
    replicated.partition("t", 0).on_follower_fetch(OTHER, 1, 0, replicated.clock.ms)
    assert not waiting.outcome, "it is woken when the step that raised the high watermark is over"
    replicated.change("t", 0, isr=[ME])
    assert codes(waiting) == [NotEnoughReplicasAfterAppend.code]


def test_records_are_released_while_their_produce_waits(replicated: Broker) -> None:
    waiting = produce(replicated, 0, 1)
    assert not waiting.outcome
    sent = {id(part) for topic in waiting._request.topic_data for part in topic.partition_data}
    held = [each for each in gc.get_objects() if isinstance(each, PartitionProduceData) and id(each) not in sent]
    assert not any(each.records is not None for each in held)
    catch_up(replicated, 0)
    catch_up(replicated, 1)
    assert codes(waiting) == [NONE, NONE]
