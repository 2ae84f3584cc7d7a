"""Transactions over several brokers: coordinators, leaders and groups are on different nodes, and some nodes die."""

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from ottla.client.connection import Connection
from ottla.protocol.errors import NotLeader
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.records import Record, build_batch
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.unit.coordinators.transactions.clients import TIMEOUT_S, Address, copy_all, producer, read

QUICK = {"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "3000"}
IDS = [f"writer-{number}" for number in range(4)]


def create(cluster: OttlaCluster, *topics: str) -> None:
    for topic in topics:
        cluster.ask(lambda admin, topic=topic: admin.create_topic(topic, partitions=3, replicas=3))  # type: ignore[misc]


def write(writer: Producer, topic: str, value: str, *, commit: bool) -> None:
    """Write one transaction with a record for each partition."""
    writer.begin_transaction()
    for partition in range(3):
        writer.produce(topic, value.encode(), partition=partition)
    if commit:
        writer.commit_transaction(TIMEOUT_S)
    else:
        assert writer.flush(TIMEOUT_S) == 0
        writer.abort_transaction(TIMEOUT_S)


def test_transactions_over_several_brokers(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path).running() as cluster:
        node = Address(cluster.address)
        create(cluster, "t", "out")
        for number, id_ in enumerate(IDS):
            writer = producer(node, id_)
            for round_number in range(3):
                write(writer, "t", f"{number}.{round_number}", commit=round_number != 1)
        expected = sorted(f"{number}.{round_number}" for number in range(4) for round_number in (0, 2))
        for partition in range(3):
            assert sorted(read(node, "t", [partition])) == expected
        assert copy_all(node, "t", "out", len(expected) * 3) == len(expected) * 3
        assert sorted(read(node, "out", range(3))) == sorted(expected * 3)


def test_no_transaction_is_split_when_brokers_are_killed(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, settings=QUICK, tolerant=True).running() as cluster:
        node = Address(cluster.address)
        create(cluster, "t")
        writers = {id_: producer(node, id_) for id_ in IDS}
        committed, unknown = [], []
        for round_number in range(9):
            for id_, writer in writers.items():
                value = f"{id_}.{round_number}"
                try:
                    write(writer, "t", value, commit=True)
                except KafkaException as error:
                    unknown.append(value)
                    again_if_possible(writer, error.args[0])
                else:
                    committed.append(value)
            if round_number % 3 == 1:
                victim = cluster.alive[round_number % len(cluster.alive)]
                cluster.kill(victim)
                cluster.start(victim)
        for id_ in IDS:
            producer(node, id_)  # aborts what is open
        eventually(lambda: len({*map(tuple, seen(node))}) == 1, "all partitions have the same")
        for partition in seen(node):
            assert set(partition) <= {*committed, *unknown}
            assert {*committed} <= {*partition}
            assert len(set(partition)) == len(partition)
        assert len(committed) > len(unknown)


def seen(node: Address) -> list[list[str]]:
    return [sorted(read(node, "t", [partition])) for partition in range(3)]


def again_if_possible(writer: Producer, error: KafkaError) -> None:
    if error.txn_requires_abort():
        writer.abort_transaction(TIMEOUT_S)
    elif error.fatal():
        pytest.fail(f"the producer cannot go on: {error}")
    else:
        writer.commit_transaction(TIMEOUT_S)


def test_a_broker_that_does_not_lead_says_so(tmp_path: Path) -> None:
    """The producer aborts when its transaction is over, and continues with the same broker."""
    with OttlaCluster(tmp_path).running() as cluster:
        create(cluster, "t")
        found = cluster.ask(lambda admin: admin.topic("t"))
        leaders = {number: partition.leader for number, partition in found.partitions.items()}
        elsewhere = next(node for node in cluster.nodes if node != leaders[0])
        for version in (3, 9, 10, 11, 12, 13):
            errors = asyncio.run(
                produce_in_transaction(cluster.nodes[elsewhere].address, "t", found.id, f"id-{version}", version)
            )
            assert errors == [NotLeader.code], f"version {version}"


async def produce_in_transaction(
    address: str, topic: str, topic_id: bytes, transactional_id: str, version: int
) -> list[int]:
    """Write the first record of a transaction to partition 0; return the errors of the broker."""
    host, port = address.split(":")
    connection = await Connection.connect(host, int(port))
    record = Record(0, int(time.time() * 1000), None, b"first")
    data = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    part = PartitionProduceData(index=0, records=bytes(data))
    data_of_topic = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data_of_topic])
    answer: ProduceResponse = await connection.send(request, version=version)
    connection.close()
    return [each.error_code for response in answer.responses for each in response.partition_responses]
