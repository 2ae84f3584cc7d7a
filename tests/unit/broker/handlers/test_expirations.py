"""Requests that are answered only because their time is over are counted, as Kafka's purgatories do."""

import pytest

from ottla.broker.metrics.broker_metrics import watch_broker
from ottla.broker.metrics.registry import Registry
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker import BROKER_EPOCH, Broker, Exchange
from tests.support.exposition import Exposition
from tests.support.logs_in_memory import batch

WAIT_MS = 300
PRODUCES = "kafka_server_delayedproducemetrics_expires_total"
FETCHES = "kafka_server_delayedfetchmetrics_expires_total"
SIZE = "kafka_server_delayedoperationpurgatory_purgatorysize"
DELAYED = "kafka_server_delayedoperationpurgatory_numdelayedoperations"


def exposed(broker: Broker) -> Exposition:
    registry = Registry()
    watch_broker(registry, broker.node)
    return Exposition(registry.render())


def produce(broker: Broker, *partitions: int) -> Exchange:
    parts = [PartitionProduceData(index=number, records=bytes(batch(b"v"))) for number in partitions]
    topic = TopicProduceData(name="t", partition_data=parts)
    return broker.send(ProduceRequest(acks=-1, timeout_ms=WAIT_MS, topic_data=[topic]), 9)


def fetch(broker: Broker, *, replica: int) -> Exchange:
    part = FetchPartition(partition=0, partition_max_bytes=1000, fetch_offset=broker.log("t").log_end_offset)
    topic = FetchTopic(topic_id=broker.image.topics["t"].id, partitions=[part])
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[topic])
    if replica >= 0:
        request.replica_state = ReplicaState(replica_id=replica, replica_epoch=BROKER_EPOCH)
    return broker.send(request, 17)


@pytest.fixture
def replicated(broker: Broker) -> Broker:
    broker.register(2)
    broker.create_topic("t", partitions=2, replicas=(1, 2))
    return broker


def catch_up(broker: Broker, number: int) -> None:
    end = broker.log("t", number).log_end_offset
    broker.partition("t", number).on_follower_fetch(2, end, 0, broker.clock.ms)
    broker.completions.run()


def test_a_produce_counts_for_each_partition_that_is_late(replicated: Broker) -> None:
    both = produce(replicated, 0, 1)
    catch_up(replicated, 0)
    assert not both.outcome
    assert exposed(replicated)[f'{SIZE}{{delayedoperation="Produce"}}'] == 1
    assert exposed(replicated)[f'{DELAYED}{{delayedoperation="Produce"}}'] == 1
    replicated.clock.pass_time(WAIT_MS + 20)
    assert both.outcome
    seen = exposed(replicated)
    assert seen[PRODUCES] == 1
    assert seen[f'{PRODUCES}{{topic="t",partition="1"}}'] == 1
    assert len(seen.metrics[PRODUCES].values) == 2, "a partition that never was late has no series"
    assert seen[f'{SIZE}{{delayedoperation="Produce"}}'] == 0
    replicated.apply(RemoveTopicRecord(topic_id=replicated.image.topics["t"].id))
    assert len(exposed(replicated).metrics[PRODUCES].values) == 1
    assert exposed(replicated)[PRODUCES] == 1


def test_a_produce_that_is_replicated_in_time_does_not_count(replicated: Broker) -> None:
    waiting = produce(replicated, 0)
    catch_up(replicated, 0)
    assert waiting.outcome
    replicated.clock.pass_time(WAIT_MS + 20)
    assert exposed(replicated)[PRODUCES] == 0


@pytest.mark.parametrize(("replica", "reader"), [(-1, "consumer"), (2, "follower")])
def test_a_fetch_counts_by_its_reader(replicated: Broker, replica: int, reader: str) -> None:
    assert not fetch(replicated, replica=replica).outcome
    assert exposed(replicated)[f'{SIZE}{{delayedoperation="Fetch"}}'] == 1
    replicated.clock.pass_time(WAIT_MS + 20)
    seen = exposed(replicated)
    assert {kind: seen[f'{FETCHES}{{fetchertype="{kind}"}}'] for kind in ("consumer", "follower")} == {
        "consumer": reader == "consumer",
        "follower": reader == "follower",
    }
