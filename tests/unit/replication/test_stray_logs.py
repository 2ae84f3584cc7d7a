"""Stray logs: a broker renames logs whose replicas were removed or moved while it was down."""

import pytest

from ottla.metadata.image.image import Image
from ottla.protocol.messages.records.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.replication.partitions import Partitions
from ottla.storage.directories.logs import Logs
from ottla.storage.log.settings import LogSettings
from tests.support.clock import Clock, runtime_on
from tests.support.logs_in_memory import NOW_MS, ManualBackground, batch, make_logs
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.metadata.image.stories import replay
from tests.unit.replication.applying import Applied

ME, OTHER = 1, 2
HELD, MOVED, GONE, FORMER, RECREATED = (bytes([number]) * 16 for number in range(1, 6))


def write(logs: Logs, topic: str, topic_id: bytes | None) -> None:
    log = logs.create(topic, 0, LogSettings(), topic_id=topic_id, now_ms=NOW_MS)
    log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)


def replica(topic_id: bytes, *replicas: int) -> PartitionRecord:
    members = [*replicas]
    return PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=members, isr=members, leader=members[0], leader_epoch=0
    )


def partitions_of(logs: Logs) -> Partitions:
    return Partitions(ME, logs, runtime_on(Clock(NOW_MS)), settings_of=lambda image, topic: LogSettings())


@pytest.fixture
def image() -> Image:
    return replay(
        [
            TopicRecord(name="held", topic_id=HELD),
            replica(HELD, ME, OTHER),
            TopicRecord(name="moved", topic_id=MOVED),
            replica(MOVED, OTHER),
            TopicRecord(name="recreated", topic_id=RECREATED),
            replica(RECREATED, ME),
        ]
    )


def test_logs_of_deleted_and_moved_replicas_are_set_aside(image: Image, caplog: pytest.LogCaptureFixture) -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", "/b", background=background)
    for topic, topic_id in (("held", HELD), ("moved", MOVED), ("gone", GONE), ("recreated", FORMER)):
        write(logs, topic, topic_id)
    write(logs, "held-of-old", None)
    partitions_of(logs).mark_stray_logs(image)
    background.pass_time(60_000)
    assert [log.topic for log in logs] == ["held"]
    names = sorted(name for path in ("/a", "/b") for name in disk.names(path))
    kept = [(name.partition(".")[0], name.rpartition("-")[2]) for name in names if name.endswith("-stray")]
    assert kept == [("gone-0", "stray"), ("held-of-old-0", "stray"), ("moved-0", "stray"), ("recreated-0", "stray")]
    assert "Renamed the stray log of gone-0 to " in caplog.text
    again = make_logs(disk.crash(), "/a", "/b")
    assert [log.topic for log in again] == ["held"], "the next start does not take it for a log"


def test_a_directory_that_fails_keeps_its_logs_unchanged(image: Image) -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", "/b", background=ManualBackground())
    for topic in ("gone", "gone-too", "gone-as-well", "and-gone"):
        write(logs, topic, GONE)
    disk.fail_after(1)
    partitions_of(logs).mark_stray_logs(image)
    failed, working = sorted(logs.directories, key=lambda directory: directory.is_online)
    assert failed.failure is not None
    assert len(failed.logs) == 2
    assert working.is_online
    assert not working.logs


def test_a_broker_survives_a_disk_that_fails_while_a_topic_is_deleted() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", "/b", background=ManualBackground())
    broker = Applied(partitions_of(logs))
    for name, topic_id in (("first", HELD), ("second", MOVED)):
        broker.apply(TopicRecord(name=name, topic_id=topic_id), replica(topic_id, ME))
        log = logs.get(name, 0)
        assert log is not None
        log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    disk.fail_after(1)
    broker.apply(RemoveTopicRecord(topic_id=HELD))
    assert [directory.is_online for directory in logs.directories] == [False, True]
    broker.apply(RemoveTopicRecord(topic_id=MOVED))
    assert [*broker.partitions] == []
    assert [name.rpartition("-")[2] for name in disk.names("/b")] == ["delete"]
