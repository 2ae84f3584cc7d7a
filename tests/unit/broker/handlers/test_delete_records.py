"""DeleteRecords waits for the replicas whose brokers are alive, and for a log that is being moved."""

from ottla.protocol.errors import InvalidTopic, NotLeader, RequestTimedOut, UnknownTopicOrPartition
from ottla.protocol.messages.records.metadata_records import BrokerRegistrationChangeRecord, RemoveTopicRecord
from ottla.protocol.messages.rpc.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.broker import BROKER_EPOCH, NOW_MS, Broker, Exchange
from tests.support.logs_in_memory import batch


def send(broker: Broker, offset: int, *, topic: str = "t", timeout_ms: int = 1000) -> Exchange:
    parts = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    topics = [DeleteRecordsTopic(name=topic, partitions=parts)]
    return broker.send(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), 2)


def answer_of(exchange: Exchange) -> tuple[int, int]:
    found: DeleteRecordsPartitionResult = exchange.response.topics[0].partitions[0]
    return found.error_code, found.low_watermark


def replicated(broker: Broker) -> None:
    """Two replicas with four records, of which the follower has all."""
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    broker.append("t", 0, batch(b"1", b"2"), batch(b"3", b"4"))
    broker.partition("t").on_follower_fetch(2, 4, 0, NOW_MS)
    broker.completions.run()


def test_the_answer_is_sent_when_the_follower_has_followed(broker: Broker) -> None:
    replicated(broker)
    exchange = send(broker, 3)
    assert not exchange.outcome
    broker.partition("t").on_follower_fetch(2, 4, 2, NOW_MS)
    broker.completions.run()
    assert not exchange.outcome
    broker.partition("t").on_follower_fetch(2, 4, 3, NOW_MS)
    broker.completions.run()
    assert answer_of(exchange) == (0, 3)


def test_a_deletion_times_out(broker: Broker) -> None:
    replicated(broker)
    exchange = send(broker, 3, timeout_ms=100)
    broker.clock.pass_time(50)
    assert not exchange.outcome
    broker.clock.pass_time(100)
    assert answer_of(exchange) == (RequestTimedOut.code, 0)


def test_a_fenced_follower_does_not_delay_the_answer(broker: Broker) -> None:
    replicated(broker)
    broker.apply(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=BROKER_EPOCH, fenced=1))
    assert answer_of(send(broker, 3)) == (0, 3)


def test_a_former_leader_answers_with_an_error(broker: Broker) -> None:
    replicated(broker)
    exchange = send(broker, 3)
    broker.change("t", leader=2)
    assert answer_of(exchange) == (NotLeader.code, -1)


def test_the_topic_is_deleted_during_the_wait(broker: Broker) -> None:
    replicated(broker)
    exchange = send(broker, 3)
    broker.apply(RemoveTopicRecord(topic_id=broker.image.topics["t"].id))
    assert answer_of(exchange) == (UnknownTopicOrPartition.code, -1)


def test_internal_topics_keep_their_records(broker: Broker) -> None:
    broker.create_topic("__consumer_offsets")
    assert answer_of(send(broker, 0, topic="__consumer_offsets")) == (InvalidTopic.code, -1)
