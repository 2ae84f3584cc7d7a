"""The traffic of topics, measured on real logs on a disk in memory."""

from typing import Any

from ottla.broker.metrics.family import render
from ottla.broker.metrics.request_metrics import Meter
from ottla.broker.metrics.topic_traffic import TopicTrafficMeters
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.records.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.protocol.messages.rpc.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.rpc.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.replication.partitions import Partitions
from ottla.storage.log.settings import LogSettings
from tests.support.clock import Clock, runtime_on
from tests.support.counting import count_lines
from tests.support.exposition import Exposition
from tests.support.log_workbench import batch
from tests.support.logs_in_memory import NOW_MS, make_logs
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.replication.applying import Applied

ID = bytes(range(16))
PREFIX = "kafka_server_brokertopicmetrics"


class Broker(Applied):
    """The replicas of broker 1."""

    def __init__(self) -> None:
        logs = make_logs(SimulatedDisk(1), "/data")
        settings = LogSettings(segment_bytes=1000)
        super().__init__(Partitions(1, logs, runtime_on(Clock(NOW_MS)), settings_of=lambda image, topic: settings))

    def create(self, name: str, leader: int = 1, topic_id: bytes = ID) -> None:
        self.apply(
            TopicRecord(name=name, topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                leader_epoch=0,
                partition_epoch=0,
                replicas=[1, 2],
                isr=[1, 2],
                leader=leader,
                directories=[ID, ID],
            ),
        )

    def delete(self, name: str, topics: TopicTrafficMeters) -> None:
        topic = self.partitions.image.topics[name]
        self.apply(RemoveTopicRecord(topic_id=topic.id))
        topics.forget([topic])

    def append(self, topic: str, *values: bytes) -> int:
        data = batch(*values)
        self.partitions.get(topic, 0).append(memoryview(data), acks=1, now_ms=NOW_MS)
        return len(data)


def read_metrics(topics: TopicTrafficMeters) -> Exposition:
    return Exposition(render(topics.families()))


def test_incoming_bytes_are_the_growth_of_logs_over_many_segments() -> None:
    broker = Broker()
    broker.create("old")
    broker.append("old", b"before the start")
    topics = TopicTrafficMeters(broker.partitions)
    broker.append("old", b"still before")
    topics.start()
    broker.create("new", topic_id=bytes(16)[:-1] + b"\x07")
    sizes = {"old": 0, "new": 0}
    for step in range(50):
        for name in sizes:
            sizes[name] += broker.append(name, b"x" * 100, b"y" * step)
        if step % 7 == 0:
            topics.measure_growth()
    assert len(broker.partitions.get("old", 0).log.segments) > 5
    seen = read_metrics(topics)
    for name, size in sizes.items():
        assert seen[f'{PREFIX}_bytesin_total{{topic="{name}"}}'] == size
        assert seen[f'{PREFIX}_messagesin_total{{topic="{name}"}}'] == 100


def test_the_growth_of_a_follower_counts_as_replication() -> None:
    broker = Broker()
    broker.create("t")
    topics = TopicTrafficMeters(broker.partitions)
    topics.start()
    size = broker.append("t", b"x")
    broker.partitions.get("t", 0).is_leader = False
    assert read_metrics(topics)[f'{PREFIX}_replicationbytesin_total{{topic="t"}}'] == size
    assert read_metrics(topics)[f'{PREFIX}_bytesin_total{{topic="t"}}'] == 0


def test_outgoing_bytes_are_counted_for_consumers_and_followers() -> None:
    broker = Broker()
    broker.create("t")
    topics = TopicTrafficMeters(broker.partitions)
    topics.start()
    count = topics.count_fetch_response
    consumer, follower = (Meter(BY_KEY[ApiKey.FETCH], kind, 12) for kind in ("FetchConsumer", "FetchFollower"))
    parts = [PartitionData(records=b"x" * 10), PartitionData(records=b""), PartitionData(error_code=6, records=None)]
    by_name = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])
    by_id = FetchResponse(responses=[FetchableTopicResponse(topic_id=ID, partitions=parts)])
    count(consumer, by_name)
    count(consumer, by_id)
    count(follower, by_id)
    count(consumer, FetchResponse(responses=[FetchableTopicResponse(topic="made up", partitions=parts)]))
    seen = read_metrics(topics)
    assert seen[f'{PREFIX}_bytesout_total{{topic="t"}}'] == 20
    assert seen[f'{PREFIX}_replicationbytesout_total{{topic="t"}}'] == 10
    assert seen[f'{PREFIX}_failedfetchrequests_total{{topic="t"}}'] == 3
    assert consumer.errors == {6: 3}
    count(consumer, FetchResponse(error_code=70))
    assert consumer.errors == {6: 3, 70: 1}
    assert "made up" not in render(topics.families())


def test_produces_are_counted_with_their_errors() -> None:
    broker = Broker()
    broker.create("t")
    topics = TopicTrafficMeters(broker.partitions)
    topics.start()
    meter = Meter(BY_KEY[ApiKey.PRODUCE], "Produce", 11)
    parts = [PartitionProduceResponse(error_code=code) for code in (0, 0, 3, 3, 6)]
    response: Any = ProduceResponse(
        responses=[
            TopicProduceResponse(name="t", partition_responses=parts),
            TopicProduceResponse(name="gone", partition_responses=[PartitionProduceResponse(error_code=3)]),
        ]
    )
    topics.count_produce_response(meter, response)
    assert read_metrics(topics)[f'{PREFIX}_failedproducerequests_total{{topic="t"}}'] == 3
    assert (meter.errors, meter.failures) == ({3: 1, 6: 1}, 1)


def test_a_recreated_topic_starts_with_new_counts() -> None:
    broker = Broker()
    broker.create("t")
    topics = TopicTrafficMeters(broker.partitions)
    topics.start()
    broker.append("t", b"x")
    assert read_metrics(topics)[f'{PREFIX}_messagesin_total{{topic="t"}}'] == 1
    broker.delete("t", topics)
    assert render(topics.families()) == "\n"
    broker.create("t", topic_id=bytes(16)[:-1] + b"\x07")
    broker.append("t", b"x", b"y")
    assert read_metrics(topics)[f'{PREFIX}_messagesin_total{{topic="t"}}'] == 2


def test_deleted_topics_leave_nothing_and_each_costs_the_same() -> None:
    broker = Broker()
    topics = TopicTrafficMeters(broker.partitions)
    topics.start()
    consumer = Meter(BY_KEY[ApiKey.FETCH], "FetchConsumer", 12)
    costs = []
    for step in range(100):
        name = f"passing-{step}"
        for stays in (f"stays-{step}", name):
            broker.create(stays, topic_id=stays.encode().ljust(16))
            broker.append(stays, b"x")
            parts = [PartitionData(records=b"x" * 10)]
            topics.count_fetch_response(
                consumer, FetchResponse(responses=[FetchableTopicResponse(topic=stays, partitions=parts)])
            )
        topics.measure_growth()
        topic = broker.partitions.image.topics[name]
        broker.apply(RemoveTopicRecord(topic_id=topic.id))
        costs.append(count_lines(lambda topic=topic: topics.forget([topic])))  # type: ignore[misc]
        assert f'topic="{name}"' not in render(topics.families())
    assert costs[-1] == costs[0]
