"""Lookup APIs in every version: offsets, epochs, producers, directories, topics, the cluster."""

import time
from functools import partial
from typing import Any

import pytest

from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.rpc.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.rpc.describe_producers import TopicRequest as ProducersOf
from ottla.protocol.messages.rpc.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.rpc.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import TIMESTAMP, UNKNOWN_ID

BAD_NAMES = ("", ".", "..", "a b", "ä", "x" * 250)


def versions_of(key: ApiKey) -> range:
    return range(BY_KEY[key].oldest, BY_KEY[key].latest_stable + 1)


def batch(*delays: int, **options: Any) -> bytearray:
    """Return a batch with a record for each delay."""
    return build_batch([Record(n, TIMESTAMP + delay, b"k", b"v" * 50) for n, delay in enumerate(delays)], **options)


@pytest.fixture(scope="module")
def topic(two_nodes: tuple[NodePair, object]) -> str:
    """Return a topic with records in plain and compressed batches, whose timestamps do not only rise."""
    both = two_nodes[0]
    name = both.new_topic(partitions=4)
    both.produce(name, batch(0, 50, 20), batch(30, 10), batch(40, 41, 7, compression=Compression.LZ4))
    both.produce(name, batch(5, 5, 5), batch(3), partition=1)
    both.produce(name, batch(1, 2, producer_id=77, producer_epoch=3, base_sequence=5), partition=2)
    return name


class TestListOffsets:
    @pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
    def test_every_timestamp_gets_the_same_answer(self, both: NodePair, topic: str, version: int) -> None:
        times = (*range(-8, 1), *(TIMESTAMP + delay for delay in (-1, 0, 5, 15, 31, 41, 45, 50, 51)), 1 << 62)
        for timestamp in times:
            for isolation in (0, 1):
                both.expect_same(_offsets((topic, [(index, timestamp, -1) for index in range(5)]), isolation), version)

    @pytest.mark.parametrize("replica", [-1, -2, -3, 0, 1, 5])
    def test_replica_ids_get_the_same_answers(self, both: NodePair, topic: str, replica: int) -> None:
        for timestamp in (-1, -2, -3, TIMESTAMP + 5):
            both.expect_same(_offsets((topic, [(0, timestamp, -1)]), replica=replica), 11)

    @pytest.mark.parametrize("epoch", [-3, -2, -1, 0, 1, 9])
    @pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
    def test_leader_epochs_are_checked_the_same_way(self, both: NodePair, topic: str, version: int, epoch: int) -> None:
        for replica in (-1, -2):
            both.expect_same(_offsets((topic, [(0, -1, epoch), (1, -2, epoch)]), replica=replica), version)

    @pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
    def test_repeated_and_missing_partitions_get_the_same_answers(
        self, both: NodePair, topic: str, version: int
    ) -> None:
        both.expect_same(_offsets((topic, [(0, -1, -1), (0, -2, -1), (1, -1, -1)])), version)
        both.expect_same(
            ListOffsetsRequest(replica_id=-1, topics=[_query(topic, (0, -1)), _query(topic, (0, -1), (1, -1))]), version
        )
        both.expect_same(
            ListOffsetsRequest(replica_id=-1, topics=[_query(topic, (0, -1)), _query(topic, (1, -1))]), version
        )
        both.expect_same(
            ListOffsetsRequest(replica_id=-1, topics=[_query("nowhere", (0, -1)), _query(topic, (99, -1))]), version
        )
        both.expect_same(ListOffsetsRequest(replica_id=-1, topics=[]), version)
        both.expect_same(ListOffsetsRequest(replica_id=-1, topics=[_query(topic)]), version)
        for name in BAD_NAMES:
            both.expect_same(ListOffsetsRequest(replica_id=-1, topics=[_query(name, (0, -1))]), version)

    @pytest.mark.parametrize("isolation", [-1, 2, 127])
    def test_invalid_isolation_levels_get_the_same_answers(self, both: NodePair, topic: str, isolation: int) -> None:
        both.expect_same(_offsets((topic, [(0, -1, -1), (1, -2, -1)]), isolation), 11)

    def test_open_transactions_get_the_same_answers(self, both: NodePair) -> None:
        name = both.new_topic()
        both.produce(name, batch(1))
        both.produce(name, batch(5, producer_id=5, producer_epoch=0, base_sequence=0), batch(9))
        for isolation in (0, 1):
            for timestamp in (-1, -2, -3, TIMESTAMP + 2, TIMESTAMP + 7):
                both.expect_same(_offsets((name, [(0, timestamp, -1)]), isolation), 11)

    def test_empty_and_truncated_logs_get_the_same_answers(self, both: NodePair) -> None:
        name = both.new_topic(partitions=2)
        both.produce(name, batch(1, 9, 2), batch(3))
        both.expect_same(_deletion(name, (0, 3)), 2)
        for timestamp in (-1, -2, -4, -5, -6, TIMESTAMP, TIMESTAMP + 3, TIMESTAMP + 4):
            both.expect_same(_offsets((name, [(0, timestamp, -1), (1, timestamp, -1)])), 11)
        both.expect_same(_offsets((name, [(1, -3, -1)])), 11)

    def test_logs_of_several_segments_get_the_same_answers(self, both: NodePair) -> None:
        name = both.new_topic(configs={"segment.bytes": "1048576", "index.interval.bytes": "100"})
        for number in range(30):
            both.produce(name, batch(*(number * 1000 + (number * index * 37) % 500 for index in range(1000))))
        for timestamp in range(TIMESTAMP - 500, TIMESTAMP + 31_000, 499):
            both.expect_same(_offsets((name, [(0, timestamp, -1)])), 7)
        both.expect_same(_offsets((name, [(0, -3, -1)])), 7)


def _query(topic: str, *parts: tuple[int, int]) -> ListOffsetsTopic:
    return ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=time) for index, time in parts]
    )


def _offsets(
    query: tuple[str, list[tuple[int, int, int]]], isolation: int = 0, *, replica: int = -1
) -> ListOffsetsRequest:
    name, parts = query
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp, epoch in parts
    ]
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        timeout_ms=1000,
        topics=[ListOffsetsTopic(name=name, partitions=partitions)],
    )


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offsets_for_leader_epochs_get_the_same_answers(both: NodePair, topic: str, version: int) -> None:
    for current in (-2, -1, 0, 1):
        for epoch in (-9, -1, 0, 1):
            for replica in (-2, -1, 1):
                parts = [
                    OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
                    for index in (0, 1, 3, 9, 0)
                ]
                topics = [OffsetForLeaderTopic(topic=name, partitions=parts) for name in (topic, "nowhere", *BAD_NAMES)]
                both.expect_same(OffsetForLeaderEpochRequest(replica_id=replica, topics=topics), version)
    twice = [
        OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0)])
        for index in (0, 1)
    ]
    both.expect_same(OffsetForLeaderEpochRequest(replica_id=-1, topics=twice), version)


class TestDeleteRecords:
    @pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_RECORDS))
    def test_every_offset_gets_the_same_answer(self, both: NodePair, version: int) -> None:
        name = both.new_topic(partitions=2)
        both.produce(name, batch(1, 2, 3), batch(4))
        for offset in (0, 1, 3, 2, 9, -2, -1, 4, 5):
            both.expect_same(_deletion(name, (0, offset)), version)
            both.expect_same(_offsets((name, [(0, -2, -1)])), 11)
        both.expect_same(_deletion(name, (1, -1), (7, 0), (-1, 0)), version)
        both.expect_same(_deletion(name, (1, -1), (1, 5)), version)
        both.expect_same(_deletion("nowhere", (0, 0)), version)
        both.expect_same(DeleteRecordsRequest(topics=[], timeout_ms=10), version)
        both.expect_same(_deletion(name), version)
        for bad in BAD_NAMES:
            both.expect_same(_deletion(bad, (0, 0)), version)
        both.expect_same(_deletion("__consumer_offsets", (0, 0)), version)

    @pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete", ""])
    def test_deletion_depends_on_the_cleanup_policy(self, both: NodePair, policy: str) -> None:
        name = both.new_topic(configs={"cleanup.policy": policy})
        both.produce(name, batch(1, 2, 3))
        for offset in (1, 5, -1):
            both.expect_same(_deletion(name, (0, offset)), 2)


def _deletion(topic: str, *parts: tuple[int, int]) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in parts]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)


class TestInitProducerId:
    @pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
    def test_an_idempotent_producer_gets_a_new_id(self, both: NodePair, version: int) -> None:
        self._wait_for_producer_ids(both)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        first = both.expect_same(request, version, ignoring=["producer_id"])
        second = both.expect_same(request, version, ignoring=["producer_id"])
        assert (first.ottla.error_code, second.ottla.producer_id) == (0, first.ottla.producer_id + 1)

    @pytest.mark.parametrize("sent", [(-1, -1), (-1, 0), (5, -1), (5, 3), (0, 0), (-2, 0), (5, -2)])
    @pytest.mark.parametrize("version", range(3, 6))
    def test_requested_producer_ids_and_epochs_get_the_same_answers(
        self, both: NodePair, version: int, sent: tuple[int, int]
    ) -> None:
        self._wait_for_producer_ids(both)
        request = InitProducerIdRequest(transactional_id=None, producer_id=sent[0], producer_epoch=sent[1])
        answers = both.ask(request, version)
        for answer in answers:
            answer.producer_id = min(answer.producer_id, 0)
        assert not both.differences(answers, version)

    @pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
    def test_an_empty_transactional_id_is_refused(self, both: NodePair, version: int) -> None:
        both.expect_same(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)

    def _wait_for_producer_ids(self, both: NodePair) -> None:
        """Wait until Kafka has a block of ids from the controller: it refuses until then, while Ottla waits."""
        for _ in range(100):
            if not both.ask(InitProducerIdRequest(transactional_id=None), 5).kafka.error_code:
                return
            time.sleep(0.05)


class TestDescribeProducers:
    def test_producers_are_described_the_same_way(self, both: NodePair, topic: str) -> None:
        names = (topic, "nowhere", *BAD_NAMES)
        topics = [ProducersOf(name=name, partition_indexes=[0, 2, 9, 2, -1]) for name in names]
        both.expect_same(DescribeProducersRequest(topics=topics), 0, messages=Messages.LOOSELY)
        both.expect_same(DescribeProducersRequest(topics=[]), 0)

    def test_the_last_sequence_of_each_producer_is_described(self, both: NodePair) -> None:
        name = both.new_topic()
        both.produce(name, batch(1, 2, producer_id=9, producer_epoch=1, base_sequence=0))
        both.produce(name, batch(3, producer_id=9, producer_epoch=1, base_sequence=2))
        both.produce(name, batch(3, producer_id=10, producer_epoch=0, base_sequence=7))
        both.expect_same(DescribeProducersRequest(topics=[ProducersOf(name=name, partition_indexes=[0])]), 0)


class TestDirectories:
    @pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_LOG_DIRS))
    def test_log_directories_are_described_the_same_way(self, both: NodePair, topic: str, version: int) -> None:
        ignoring = ["log_dir", "usable_bytes"]
        described = [DescribableLogDirTopic(topic=name, partitions=[0, 1, 9]) for name in (topic, "nowhere", "")]
        both.expect_same(DescribeLogDirsRequest(topics=described), version, ignoring=ignoring)
        both.expect_same(DescribeLogDirsRequest(topics=[]), version, ignoring=ignoring)
        existing = [DescribableLogDirTopic(topic=topic, partitions=list(range(4)))]
        both.expect_same(DescribeLogDirsRequest(topics=existing), version, ignoring=ignoring)
        answers = both.ask(DescribeLogDirsRequest(topics=None), version)
        for side, answer in zip(both.sides, answers, strict=True):
            side.memory["directory"] = answer.results[0].log_dir
            assert topic in {entry.name for entry in answer.results[0].topics}

    @pytest.mark.parametrize("version", versions_of(ApiKey.ALTER_REPLICA_LOG_DIRS))
    def test_needless_and_impossible_moves_get_the_same_answers(self, both: NodePair, topic: str, version: int) -> None:
        for side, answer in zip(both.sides, both.ask(DescribeLogDirsRequest(topics=None), 4), strict=True):
            side.memory["directory"] = answer.results[0].log_dir
        for name in (topic, "nowhere", "x" * 220, *BAD_NAMES):
            for path in ("/nowhere", "relative", ""):
                both.expect_same(_move(path, name, 0, 1, 9), version)
            both.expect_same(partial(_move_to_same_directory, name), version)
        both.expect_same(AlterReplicaLogDirsRequest(dirs=[]), version)
        both.expect_same(_move("/nowhere", topic), version)
        twice = [_move(path, topic, 0).dirs[0] for path in ("/nowhere", "relative")]
        both.expect_same(AlterReplicaLogDirsRequest(dirs=twice), version)


def _move_to_same_directory(topic: str, side: Side) -> AlterReplicaLogDirsRequest:
    return _move(side.memory["directory"], topic, 0, 1, 9)


def _move(path: str, topic: str, *partitions: int) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])


class TestDescribeTopicPartitions:
    def test_pages_of_topics_get_the_same_answers(self, both: NodePair, topic: str) -> None:
        other = both.new_topic(partitions=3)
        first, last = sorted((topic, other))
        bad = BAD_NAMES[1:]  # Kafka itself fails for an empty name without a cursor
        for names in (
            [first, last],
            [first],
            [last, "nowhere", *bad],
            [first, first, last],
            ["__consumer_offsets"],
        ):
            for limit in (-1, 0, 1, 2, 3, 4, 5, 7, 2000, 99_999):
                both.expect_same(_page(names, limit), 0, ordered=["topics", "partitions"])
                for cursor in ((first, 0), (first, 2), (last, 1), (last, 9), (first, -1), ("nowhere", 0), ("zz", 0)):
                    both.expect_same(_page(names, limit, cursor), 0, ordered=["topics", "partitions"])

    def test_all_topics_are_described_the_same_way(self, both: NodePair, topic: str) -> None:
        for limit in (1, 3, 2000):
            for cursor in (None, (topic, 0), (topic, 1), (topic, 9), (topic, -1), (topic + "-", 3), ("zz", 0)):
                both.expect_same(_page([], limit, cursor), 0, ordered=["topics", "partitions"])


def _page(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_CLUSTER))
def test_the_cluster_is_described_the_same_way(both: NodePair, version: int) -> None:
    for endpoint_type in (1, 2, 0, 3, -1):
        for flag in (False, True):
            request = DescribeClusterRequest(
                endpoint_type=endpoint_type if version else 1,
                include_cluster_authorized_operations=flag,
                include_fenced_brokers=flag and version >= 2,
            )
            both.expect_same(request, version, messages=Messages.EXACTLY)


class TestMetadata:
    @pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
    def test_topics_by_name_get_the_same_answers(self, both: NodePair, topic: str, version: int) -> None:
        for names in (
            None,
            [],
            [topic],
            [topic, topic],
            ["nowhere"],
            [topic, "nowhere", *BAD_NAMES],
            ["__consumer_offsets"],
        ):
            if names is None and version == 0:
                continue
            for create in (False, True):
                topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
                request = MetadataRequest(topics=topics, allow_auto_topic_creation=create if version >= 4 else True)
                both.expect_same(request, version)

    @pytest.mark.parametrize("version", range(10, 14))
    def test_topics_by_id_get_the_same_answers(self, both: NodePair, topic: str, version: int) -> None:
        def expect_same(*topics: tuple[str | None, bool | None]) -> None:
            """Ask for topics by name, each with its id, an unknown id or none."""

            def make(side: Side) -> MetadataRequest:
                ids = {None: bytes(16), True: side.id_of(topic), False: UNKNOWN_ID}
                entries = [MetadataRequestTopic(name=name, topic_id=ids[kind]) for name, kind in topics]
                return MetadataRequest(topics=entries, include_topic_authorized_operations=True)

            both.expect_same(make, version)

        expect_same((None, True))
        expect_same((None, False))
        expect_same((None, True), (None, False), (None, True))
        expect_same((topic, True))
        expect_same(("nowhere", True))
        expect_same((topic, None), (None, True))
        expect_same(("nowhere", None), (None, False))
        expect_same((None, None))
        expect_same((None, None), (topic, None))
        expect_same((None, None), (None, True))

    @pytest.mark.parametrize("version", range(8, 14))
    def test_authorized_operations_get_the_same_answers(self, both: NodePair, topic: str, version: int) -> None:
        for of_cluster in (False, True) if version <= 10 else (False,):
            for of_topics in (False, True):
                for names in (None, [topic, "nowhere", "a b"]):
                    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
                    request = MetadataRequest(
                        topics=topics,
                        include_cluster_authorized_operations=of_cluster,
                        include_topic_authorized_operations=of_topics,
                    )
                    both.expect_same(request, version)


@pytest.mark.parametrize("version", versions_of(ApiKey.SASL_AUTHENTICATE))
def test_authentication_on_a_plaintext_listener_fails_the_same_way(both: NodePair, version: int) -> None:
    both.expect_same(SaslAuthenticateRequest(auth_bytes=b"\0admin\0secret"), version)
    both.expect_same(SaslHandshakeRequest(mechanism="PLAIN"), min(version, 1))


@pytest.mark.parametrize("version", versions_of(ApiKey.API_VERSIONS))
def test_served_api_versions_are_advertised_the_same_way(both: NodePair, version: int) -> None:
    """Ottla advertises only APIs that it serves, with the versions that Kafka advertises."""
    good = ApiVersionsRequest(client_software_name="a", client_software_version="1.0")
    answers = both.ask(good, version)
    served = {api.api_key for api in answers.ottla.api_keys}
    answers.kafka.api_keys = [api for api in answers.kafka.api_keys if api.api_key in served]
    assert not both.differences(answers, version)
    if version >= 3:
        for name in ("", "-", "a-", "-a", "a.b-c", "ä", "a b", "a_b", "A1", "a" * 300):
            both.expect_same(
                ApiVersionsRequest(client_software_name=name, client_software_version="1"),
                version,
                ignoring=["api_keys"],
            )
            both.expect_same(
                ApiVersionsRequest(client_software_name="a", client_software_version=name),
                version,
                ignoring=["api_keys"],
            )
