"""The metadata loader: batches, transactions, snapshots."""

import pytest

from ottla.metadata.image.encoding import control_batch, metadata_batch
from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.loader import MetadataLoader, Update
from ottla.metadata.image.snapshot import snapshot_records
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.records.raft_records import LeaderChangeMessage
from ottla.protocol.wire.batch import read_batches
from tests.unit.metadata.image.stories import uuid


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=uuid(ord(name)))


class Log:
    """A loader, and the end of the log that it has loaded."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.end = 0

    def write(self, *records: object) -> None:
        last = self.end + len(records) - 1
        self.loader.load(records, base_offset=self.end, last_offset=last, epoch=1, timestamp=self.end * 10)
        self.end = last + 1

    def publish(self) -> Update:
        update = self.loader.publish()
        assert update is not None
        return update

    @property
    def topics(self) -> str:
        return "".join(sorted(self.loader.image.topics))


def test_batches_accumulate_until_they_are_published() -> None:
    log = Log()
    assert log.loader.publish() is None
    log.write(topic("a"))
    log.write(topic("b"), NoOpRecord())
    assert log.topics == ""
    update = log.publish()
    assert update.image is log.loader.image
    assert (update.image.offset, update.image.epoch, update.image.timestamp) == (2, 1, 10)
    assert [made.name for made in update.changes.topics_created] == ["a", "b"]
    assert update.batch_aligned
    assert log.loader.publish() is None


def test_a_batch_without_changes_advances_the_image() -> None:
    log = Log()
    log.write(NoOpRecord())
    assert log.publish().image.offset == 0


def test_a_transaction_takes_effect_when_it_ends() -> None:
    log = Log()
    log.write(topic("a"), BeginTransactionRecord(name="x"), topic("b"))
    first = log.publish()
    assert (log.topics, first.image.offset, first.batch_aligned) == ("a", 0, False)
    log.write(topic("c"))
    assert log.loader.in_transaction
    assert log.loader.publish() is None
    log.write(EndTransactionRecord(), topic("d"))
    second = log.publish()
    assert (log.topics, second.image.offset, second.batch_aligned) == ("abcd", 5, True)
    assert [made.name for made in second.changes.topics_created] == ["b", "c", "d"]


def test_an_aborted_transaction_changes_nothing() -> None:
    log = Log()
    log.write(topic("a"))
    log.write(BeginTransactionRecord(), topic("b"))
    update = log.publish()
    assert (update.image.offset, update.batch_aligned) == (0, True)
    log.write(AbortTransactionRecord(reason="failover"), topic("c"))
    assert log.publish().image.offset == 4
    assert log.topics == "ac"


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
        [BeginTransactionRecord(), EndTransactionRecord(), EndTransactionRecord()],
    ],
)
def test_transactions_begin_before_they_end_and_do_not_nest(records: list[object]) -> None:
    with pytest.raises(ReplayError, match="at offset"):
        Log().write(*records)


def test_a_replay_error_names_the_record_and_its_offset() -> None:
    log = Log()
    log.write(NoOpRecord())
    with pytest.raises(ReplayError, match="RemoveTopicRecord at offset 1: no topic"):
        log.write(RemoveTopicRecord(topic_id=uuid(1)))


def test_a_snapshot_replaces_the_image_and_reports_the_changes() -> None:
    log = Log()
    log.write(FeatureLevelRecord(name="metadata.version", feature_level=30), topic("a"), topic("b"))
    log.write(ConfigRecord(resource_type=4, resource_name="", name="x", value="1"))
    records = list(snapshot_records(log.publish().image))
    other = Log()
    other.write(topic("b"), topic("c"), BeginTransactionRecord(), topic("d"))
    other.publish()
    update = other.loader.load_snapshot(records, offset=3, epoch=1, timestamp=30)
    assert update.image == log.loader.image == other.loader.image
    assert not other.loader.in_transaction
    assert [made.name for made in update.changes.topics_created] == ["a"]
    assert [gone.name for gone in update.changes.topics_deleted] == ["c"]
    assert [change.key for change in update.changes.configs] == [(4, "")]
    assert update.changes.old.features.metadata_version != update.changes.new.features.metadata_version


def test_control_batches_advance_the_image() -> None:
    loader = MetadataLoader()
    data = (
        control_batch([LeaderChangeMessage(leader_id=1)], base_offset=0, epoch=4, timestamp=1)
        + metadata_batch([(topic("a"), 0)], base_offset=1, epoch=4, timestamp=2)
        + control_batch([LeaderChangeMessage(leader_id=2)], base_offset=2, epoch=5, timestamp=3)
    )
    for position, header in read_batches(data):
        loader.load_batch(data, position, header)
    update = loader.publish()
    assert update is not None
    assert (update.image.offset, update.image.epoch, update.image.timestamp) == (2, 5, 3)
    assert list(update.image.topics) == ["a"]
