"""AlterReplicaLogDirs on nodes with two log directories: replicas move on both, and stay equal."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from ottla.protocol.messages.rpc.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.rpc.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.rpc.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.rpc.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.requests import Part, batch, fetch
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 20


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodePair]:
    """Return both nodes, each with the directories `logs` and `more`."""
    base = tmp_path_factory.mktemp("moves")
    folders = [base / "kafka", base / "ottla"]
    for folder in folders:
        folder.mkdir()
    kafka, ottla = KafkaNode(folders[0]), OttlaNode(folders[1], SETTINGS)
    for folder in folders:
        file = folder / "server.properties"
        file.write_text(file.read_text().replace(f"log.dirs={folder}/logs", f"log.dirs={folder}/logs,{folder}/more"))
    kafka.format()
    ottla.format()
    with ottla.running(), kafka.running(end=signal.SIGKILL):
        both = NodePair(
            Side("Kafka", {"PLAINTEXT": kafka.port}, kafka.log_tail), Side("Ottla", ottla.ports, ottla.log_tail)
        )
        for side, folder in zip(both.sides, folders, strict=True):
            side.memory["folder"] = folder
        yield both
        both.reconnect()
    assert not ottla.logged_errors()


KEPT = {"retention.ms": "-1"}
"""Keeps the old records, which Kafka would delete within a second."""


@pytest.fixture
def topic(both: NodePair) -> str:
    """Return a topic with idempotent and plain batches."""
    name = both.new_topic(configs=KEPT)
    both.produce(name, batch(5), batch(3, producer_id=7, producer_epoch=1, base_sequence=0), batch(2))
    return name


def find_directories(both: NodePair, topic: str) -> list[str]:
    """Return each node's directory of the topic's one partition, after all moves have ended."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        by_node = [
            [
                (Path(result.log_dir).name, part.is_future_key)
                for result in answer.results
                for entry in result.topics
                for part in entry.partitions
            ]
            for answer in both.ask(request, 4)
        ]
        if all(len(replicas) == 1 and not replicas[0][1] for replicas in by_node):
            return [replicas[0][0] for replicas in by_node]
        time.sleep(0.05)
    raise AssertionError(f"{topic} is still moving: {by_node}")


def ask_to_move(both: NodePair, topic: str, name: str) -> set[int]:
    """Ask both nodes to move the partition to a directory, and return their error codes."""

    def make(side: Side) -> AlterReplicaLogDirsRequest:
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        return AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=f"{side.memory['folder']}/{name}", topics=topics)]
        )

    return {answer.results[0].partitions[0].error_code for answer in both.expect_same(make, 2)}


def move(both: NodePair, topic: str, name: str) -> None:
    """Move the partition to a directory on both nodes, and wait until it is there."""
    assert ask_to_move(both, topic, name) == {0}
    assert find_directories(both, topic) == [name, name]


def cordon(both: NodePair, *names: str) -> None:
    """Cordon directories on both nodes, so that they get no new replicas."""

    def make(side: Side) -> IncrementalAlterConfigsRequest:
        value = ",".join(f"{side.memory['folder']}/{name}" for name in names)
        config = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
        broker = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        return IncrementalAlterConfigsRequest(resources=[broker], validate_only=False)

    both.expect_same(make, 1)
    both.expect_same_soon(DescribeLogDirsRequest(topics=[]), 5, ignoring=["log_dir", "usable_bytes"])
    for answer in both.ask(DescribeLogDirsRequest(topics=[]), 5):
        assert {Path(result.log_dir).name for result in answer.results if result.is_cordoned} == {*names}


def check_same_answers(both: NodePair, topic: str) -> None:
    """Check that both nodes answer all queries about the partition alike."""
    for timestamp in (-1, -2, -3, 0):
        query = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        both.expect_same(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[query])]), 11
        )
    both.expect_same(fetch(12, Part(topic, 0)), 12)
    both.expect_same(DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])]), 0)
    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    both.expect_same(
        OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[epoch])]), 4
    )
    sizes = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    both.expect_same(sizes, 4, ignoring=["log_dir", "usable_bytes"])


def test_a_replica_moves_there_and_back(both: NodePair, topic: str) -> None:
    for name in ("more", "logs", "logs", "more"):
        move(both, topic, name)
        check_same_answers(both, topic)
        both.produce(topic, batch(2))
        check_same_answers(both, topic)


def test_an_empty_replica_moves(both: NodePair) -> None:
    topic = both.new_topic(configs=KEPT)
    for name in ("more", "logs"):
        move(both, topic, name)
    # Kafka forgets the epoch of a leader that has written nothing; a write restores it.
    both.produce(topic, batch())
    check_same_answers(both, topic)


def test_a_log_that_starts_inside_a_batch_moves(both: NodePair, topic: str) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=2)
    both.expect_same(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=1000), 2
    )
    for name in ("more", "logs"):
        move(both, topic, name)
        check_same_answers(both, topic)


def test_a_cordoned_directory_gets_no_new_replicas(both: NodePair, topic: str) -> None:
    move(both, topic, "logs")
    cordon(both, "more")
    assert ask_to_move(both, topic, "more") == {InvalidReplicaAssignment.code}
    assert find_directories(both, both.new_topic()) == ["logs", "logs"]
    cordon(both, "logs", "more")
    refused = CreatableTopic(name="nowhere", num_partitions=1, replication_factor=1)
    answers = both.expect_same_soon(CreateTopicsRequest(topics=[refused], timeout_ms=5000, validate_only=True), 7)
    assert {answer.topics[0].error_code for answer in answers} == {InvalidReplicationFactor.code}
    cordon(both)
    move(both, topic, "more")
