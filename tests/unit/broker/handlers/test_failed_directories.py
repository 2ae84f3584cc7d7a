"""What clients are answered about a partition whose log directory fails, before and while they wait."""

import errno

import pytest

from ottla.protocol.errors import NONE, NotLeader, StorageFailed, UnknownTopicOrPartition
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker import Broker, Exchange
from tests.support.logs_in_memory import batch

WAIT_MS = 1000


def fail_directory(broker: Broker) -> None:
    """The directory of t-0 fails, as the node learns of it."""
    directory = broker.logs.directory_of("t", 0)
    assert directory is not None
    directory.fail(OSError(errno.EIO, "broken"))
    broker.settle()


def replicated(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))


def produce(broker: Broker, version: int = 9) -> Exchange:
    part = PartitionProduceData(index=0, records=bytes(batch(b"v")))
    topic = TopicProduceData(name="t", partition_data=[part])
    return broker.send(ProduceRequest(acks=-1, timeout_ms=WAIT_MS, topic_data=[topic]), version)


def produced(exchange: Exchange) -> int:
    code: int = exchange.response.responses[0].partition_responses[0].error_code
    return code


def fetch(broker: Broker, version: int, *, min_bytes: int = 0) -> Exchange:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=min_bytes, topics=[topic])
    if version >= 3:
        request.max_bytes = 1000
    return broker.send(request, version)


def fetched(exchange: Exchange) -> int:
    code: int = exchange.response.responses[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", [3, 9, 10])
def test_a_waiting_produce_gets_a_storage_error(broker: Broker, version: int) -> None:
    replicated(broker)
    waiting = produce(broker, version)
    assert not waiting.outcome
    fail_directory(broker)
    assert produced(waiting) == StorageFailed.code
    assert len(broker.node.timer) == 0


def test_the_storage_error_remains_after_another_broker_leads(broker: Broker) -> None:
    """The replica stays offline here, whatever the metadata say of it."""
    replicated(broker)
    fail_directory(broker)
    broker.change("t", leader=2, isr=[2])
    assert produced(produce(broker)) == StorageFailed.code


def test_a_deleted_topic_is_unknown_though_its_directory_failed(broker: Broker) -> None:
    replicated(broker)
    waiting = produce(broker)
    directory = broker.logs.directory_of("t", 0)
    assert directory is not None
    directory.failure = OSError(errno.EIO, "broken")
    broker.apply(RemoveTopicRecord(topic_id=broker.image.topics["t"].id))
    assert produced(waiting) == UnknownTopicOrPartition.code


def test_a_waiting_deletion_of_records_gets_a_storage_error(broker: Broker) -> None:
    replicated(broker)
    broker.append("t", 0, batch(b"1"))
    broker.partition("t").on_follower_fetch(2, 1, 0, broker.clock.ms)
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    waiting = broker.send(DeleteRecordsRequest(topics=[topic], timeout_ms=WAIT_MS), 2)
    assert not waiting.outcome
    fail_directory(broker)
    answer = waiting.response.topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (StorageFailed.code, -1)


@pytest.mark.parametrize(
    ("version", "error"), [(4, NotLeader), (5, NotLeader), (6, StorageFailed), (12, StorageFailed)]
)
class TestFetchErrors:
    """Clients before v6 do not know KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER lets them look for a new leader."""

    def test_in_a_failed_directory(self, broker: Broker, version: int, error: type[NotLeader | StorageFailed]) -> None:
        broker.create_topic("t")
        fail_directory(broker)
        assert fetched(fetch(broker, version)) == error.code

    def test_while_waiting(self, broker: Broker, version: int, error: type[NotLeader | StorageFailed]) -> None:
        broker.create_topic("t")
        waiting = fetch(broker, version, min_bytes=1)
        assert not waiting.outcome
        fail_directory(broker)
        assert fetched(waiting) == error.code

    def test_while_reading(
        self,
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
        version: int,
        error: type[NotLeader | StorageFailed],
    ) -> None:
        def broken(*_: object) -> bytes:
            raise OSError(errno.EIO, "broken")

        broker.create_topic("t")
        broker.append("t", 0, *[batch(b"v") for _ in range(50)])
        assert fetched(fetch(broker, version)) == NONE
        monkeypatch.setattr(broker.disk, "pread", broken)
        assert fetched(fetch(broker, version)) == error.code
