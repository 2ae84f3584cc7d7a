"""AlterReplicaLogDirs: a replica moves while it is in use, and loses nothing on the way."""

import errno
from typing import Any

from ottla.protocol.errors import LogDirNotFound, NotLeader, ReplicaNotAvailable, StaleBrokerEpoch, StorageFailed
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from ottla.protocol.messages.rpc.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.protocol.messages.rpc.describe_log_dirs import DescribeLogDirsRequest
from ottla.storage.log.partition_log import PartitionLog
from tests.support.broker import Broker
from tests.support.logs_in_memory import batch

BIG = batch(*[b"x" * 1000] * 400)


def move(broker: Broker, path: str, *, topic: str = "t", index: int = 0) -> int:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    response = broker.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]), 2)
    code: int = response.results[0].partitions[0].error_code
    return code


def finish(broker: Broker) -> None:
    """Complete the moves under way."""
    for _ in range(200):
        broker.clock.pass_time(10)
        broker.settle()


def step(broker: Broker) -> None:
    broker.clock.pass_time(0)


def where(broker: Broker, topic: str = "t") -> str:
    directory = broker.logs.directory_of(topic, 0)
    assert directory is not None
    return directory.path


def described(broker: Broker) -> list[tuple[str, int, int, bool]]:
    """Directory, bytes, lag and whether it is a future log, of each log there is."""
    response = broker.ask(DescribeLogDirsRequest(topics=None), 5)
    return [
        (result.log_dir, part.partition_size, part.offset_lag, part.is_future_key)
        for result in response.results
        for topic in result.topics
        for part in topic.partitions
    ]


def content(log: PartitionLog) -> bytes:
    return b"".join(segment.bytes_at(0, segment.size) for segment in log.segments)


def filled(broker: Broker, *, batches: int = 4) -> None:
    broker.create_topic("t")
    broker.append("t", 0, *[BIG] * batches)
    assert where(broker) == "/one"


def test_a_replica_moves_with_its_records_and_producers(broker: Broker) -> None:
    filled(broker)
    old = broker.log("t")
    data = content(old)
    assert move(broker, "/two") == 0
    finish(broker)
    new = broker.log("t")
    assert (where(broker), content(new), new is not old) == ("/two", data, True)
    assert (new.high_watermark, new.log_end_offset, new.epochs.entries) == (1600, 1600, old.epochs.entries)
    assert len(broker.moves) == 0
    (asked,) = broker.controller_requests
    assert asked.directories[0].id == broker.logs.directories[1].meta.directory_id


def test_describe_log_dirs_shows_the_progress(broker: Broker) -> None:
    filled(broker)
    size = broker.log("t").size
    move(broker, "/two")
    assert described(broker) == [("/one", size, 0, False), ("/two", 0, 1600, True)]
    broker.clock.pass_time(0)
    finish(broker)
    assert described(broker) == [("/two", size, 0, False)]


def test_moves_share_their_throttle(broker: Broker) -> None:
    broker.max_bytes_per_s = 1_000_000
    broker.create_topic("t", partitions=4)
    for index in range(4):
        broker.append("t", index, *[BIG] * 6)
        move(broker, "/two", index=index)
    seconds = len(broker.moves) * 6 * len(BIG) / broker.max_bytes_per_s
    assert seconds > 4
    broker.clock.pass_time(round((seconds - 1) * 1000))
    broker.settle()
    assert len(broker.moves) > 0
    broker.clock.pass_time(2000)
    finish(broker)
    assert len(broker.moves) == 0


def test_records_produced_during_the_move_are_copied(broker: Broker) -> None:
    filled(broker)

    def produce_and_agree(_: Any) -> AssignReplicasToDirsResponse:
        broker.append("t", 0, BIG)
        return AssignReplicasToDirsResponse()

    broker.controller = produce_and_agree
    move(broker, "/two")
    broker.append("t", 0, BIG)
    finish(broker)
    assert (where(broker), broker.log("t").log_end_offset, len(broker.controller_requests)) == ("/two", 2400, 1)
    broker.append("t", 0, BIG)
    assert broker.log("t").high_watermark == 2800


def test_the_log_start_offset_rises_during_the_move(broker: Broker) -> None:
    filled(broker)
    move(broker, "/two")
    broker.partition("t").delete_records(700)
    assert broker.partition("t").low_watermark(lambda _: True) == 0
    finish(broker)
    assert (where(broker), broker.log("t").log_start_offset) == ("/two", 700)


def test_the_log_start_offset_is_inside_a_batch(broker: Broker) -> None:
    filled(broker)
    broker.partition("t").delete_records(700)
    move(broker, "/two")
    finish(broker)
    assert (where(broker), broker.log("t").log_start_offset, broker.log("t").log_end_offset) == ("/two", 700, 1600)
    assert broker.log("t").segments[0].base_offset == 400


def test_the_log_is_emptied_during_the_move(broker: Broker) -> None:
    filled(broker)
    move(broker, "/two")
    step(broker)
    broker.partition("t").delete_records(-1)
    finish(broker)
    assert (where(broker), broker.log("t").log_start_offset, broker.log("t").log_end_offset) == ("/two", 1600, 1600)


def test_the_log_is_truncated_during_the_move(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2), isr=(1,))
    broker.append("t", 0, *[BIG] * 4)
    broker.controller = lambda _: AssignReplicasToDirsResponse(error_code=StaleBrokerEpoch.code)
    move(broker, "/two")
    finish(broker)  # the controller does not agree yet: all is copied, and waits
    assert len(broker.moves) == 1
    broker.change("t", leader=2)
    broker.logs.truncate({("t", 0): 800}, now_ms=broker.clock.ms)
    broker.change("t", leader=1)
    broker.append("t", 0, batch(b"other"), BIG, BIG, BIG)
    broker.controller = lambda _: AssignReplicasToDirsResponse()
    finish(broker)
    assert where(broker) == "/two"
    new = broker.log("t")
    assert (new.log_end_offset, new.epochs.entries) == (2001, ((0, 0), (2, 800)))
    assert b"other" in content(new)


def test_a_move_back_cancels_the_move(broker: Broker) -> None:
    filled(broker)
    move(broker, "/two")
    assert move(broker, "/one") == 0
    finish(broker)
    assert (where(broker), len(broker.moves), broker.partition("t").future) == ("/one", 0, None)
    assert [each[0] for each in described(broker)] == ["/one"]


def test_the_topic_is_deleted_during_the_move(broker: Broker) -> None:
    filled(broker)
    move(broker, "/two")
    broker.apply(RemoveTopicRecord(topic_id=broker.image.topics["t"].id))
    finish(broker)
    assert (described(broker), len(broker.moves)) == ([], 0)


def test_a_replica_that_the_controller_does_not_assign_stays(broker: Broker) -> None:
    filled(broker)
    broker.controller = lambda _: AssignReplicasToDirsResponse(error_code=NotLeader.code)
    move(broker, "/two")
    finish(broker)
    assert (where(broker), len(broker.moves)) == ("/one", 0)


def test_a_disk_fails_during_the_move(broker: Broker) -> None:
    filled(broker)
    move(broker, "/two")
    broker.logs.directories[1].fail(OSError(errno.EIO, "broken"))
    finish(broker)
    assert (where(broker), len(broker.moves)) == ("/one", 0)
    assert broker.log("t").log_end_offset == 1600
    results = broker.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert [result.error_code for result in results] == [0, StorageFailed.code]
    assert move(broker, "/two") == StorageFailed.code


def test_an_interrupted_move_continues_after_a_restart(broker: Broker) -> None:
    filled(broker)
    broker.logs.create_future(broker.log("t"), broker.logs.directories[1].meta.directory_id or b"", now_ms=0)
    broker.moves.resume()
    finish(broker)
    assert (where(broker), broker.log("t").log_end_offset) == ("/two", 1600)


def test_a_crash_in_the_last_step_of_a_move_loses_nothing(broker: Broker) -> None:
    filled(broker)
    topic_id, second = broker.image.topics["t"].id, broker.logs.directories[1]
    future = broker.logs.create_future(broker.log("t"), second.meta.directory_id or b"", now_ms=0)
    future.append_fetched(content(broker.log("t")), now_ms=0)
    # As a start after the crash finds it: the old log is gone, the new one not yet in place, the controller informed.
    broker.logs.directories[0].delete(broker.log("t"))
    broker.partitions.by_name.clear()
    broker.partitions.by_id.clear()
    broker.apply(
        PartitionChangeRecord(
            topic_id=topic_id, partition_id=0, directories=[second.meta.directory_id or b""], leader=1
        )
    )
    assert (where(broker), broker.log("t").log_end_offset) == ("/two", 1600)


def test_impossible_moves_are_refused(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t")
    broker.create_topic("elsewhere", replicas=(2,), leader=2)
    assert move(broker, "/nowhere") == LogDirNotFound.code
    assert move(broker, "/two", topic="elsewhere") == ReplicaNotAvailable.code
