"""DescribeLogDirs and OffsetForLeaderEpoch on what one node of each kind cannot show."""

from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.rpc.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.rpc.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS, METADATA_VERSION
from ottla.storage.log.settings import DEFAULT_LOG_SETTINGS
from tests.support.broker import Broker
from tests.support.logs_in_memory import batch


def test_cordoned_directories_are_marked(broker: Broker) -> None:
    broker.logs.directories[1].is_cordoned = True
    for level in (CORDONED_LOG_DIRS - 1, CORDONED_LOG_DIRS):
        broker.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
        results = broker.ask(DescribeLogDirsRequest(topics=None), 5).results
        assert results[1].is_cordoned == (level == CORDONED_LOG_DIRS)
    assert [(each.log_dir, each.is_cordoned) for each in results] == [("/one", False), ("/two", True)]
    assert {(each.total_bytes, each.usable_bytes) for each in results} == {(1000, 400)}


def test_a_log_without_a_partition_has_no_lag(broker: Broker) -> None:
    broker.logs.directories[0].create("old", 0, DEFAULT_LOG_SETTINGS, topic_id=None, now_ms=0)
    (topic,) = broker.ask(DescribeLogDirsRequest(topics=None), 5).results[0].topics
    assert (topic.name, topic.partitions[0].offset_lag) == ("old", -1)


def test_epochs_end_where_the_next_begins(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    broker.append("t", 0, batch(b"1", b"2"))
    broker.change("t", leader=2)
    broker.change("t", leader=1)
    broker.append("t", 0, batch(b"3"))
    ends = []
    for epoch in range(-1, 4):
        asked = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=2)]
        topics = [OffsetForLeaderTopic(topic="t", partitions=asked)]
        end: EpochEndOffset = broker.ask(OffsetForLeaderEpochRequest(topics=topics), 4).topics[0].partitions[0]
        ends.append((end.leader_epoch, end.end_offset))
    assert ends == [(-1, -1), (0, 2), (0, 2), (2, 3), (-1, -1)]
