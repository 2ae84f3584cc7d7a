"""A fetcher step by step: its requests to the leader, and how it handles the responses."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    NetworkFailed,
    NotLeader,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from ottla.protocol.messages.rpc.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.rpc.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.wire.records import Record, build_batch
from ottla.replication.fetch_requests import FetchLimits
from ottla.replication.fetcher import Fetcher, Lane
from ottla.replication.partition import Partition
from ottla.replication.truncation_queue import TruncationQueue
from ottla.storage.log.partition_log import PartitionLog
from tests.support.broker import ME, Broker

LEADER = 2
EPOCH_OF_BROKER = 7


class Held:
    """A throttle that is switched by hand."""

    def __init__(self) -> None:
        self.is_reached = False
        self.counted = 0

    def holds_back(self, topic: str, index: int) -> bool:
        return self.is_reached

    def count(self, topic: str, index: int, size: int) -> None:
        self.counted += size


class Bench:
    """Broker 1, which follows broker 2."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.broker.register(LEADER)
        self.throttle = Held()
        self.failed: list[Partition] = []
        self.broker_epoch = EPOCH_OF_BROKER
        self.fetcher = Fetcher(
            ME,
            LEADER,
            FetchLimits(backoff_ms=1000),
            self.broker.logs,
            TruncationQueue(self.broker.logs, lambda action: action(), self.broker.clock.now_ms),
            broker_epoch=lambda: self.broker_epoch,
            throttle=self.throttle,
            on_failed=self.failed.append,
            on_ready=lambda: None,
        )

    def follow(self, topic: str = "t", partitions: int = 1) -> PartitionLog:
        self.broker.create_topic(topic, partitions=partitions, replicas=(LEADER, ME), leader=LEADER)
        for number in range(partitions):
            self.fetcher.add(self.broker.partition(topic, number))
        return self.broker.log(topic)

    def poll(self) -> dict[Lane, Any]:
        return dict(self.fetcher.poll(self.broker.clock.ms))

    def fetch(self) -> FetchRequest:
        (request,) = self.poll().values()
        assert isinstance(request, FetchRequest)
        return request

    def answer(self, *parts: PartitionData, topic: str = "t", lane: Lane = Lane.MAIN, **fields: Any) -> None:
        topic_id = self.broker.image.topics[topic].id
        topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(parts))] if parts else []
        response = FetchResponse(responses=topics, **{"session_id": 5, **fields})
        self.fetcher.handle_response(lane, response, self.broker.clock.ms)

    def offset(self, offset: int = -1, error_code: int = 0) -> None:
        part = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=error_code)
        topics = [ListOffsetsTopicResponse(name="t", partitions=[part])]
        self.fetcher.handle_response(Lane.SIDE, ListOffsetsResponse(topics=topics), self.broker.clock.ms)

    def is_asked_for(self, topic: str = "t") -> bool:
        """Whether the next requests are about a topic, whose answers are not waited for."""
        topic_id = self.broker.image.topics[topic].id
        requests = [request for request in self.poll().values() if isinstance(request, FetchRequest)]
        return any(each.topic_id == topic_id for request in requests for each in request.topics)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.broker.close()


def batch(offset: int, epoch: int = 0, records: int = 1) -> bytearray:
    return build_batch(
        [Record(offset + number, 1_700_000_000_000, b"k", b"v" * 20) for number in range(records)],
        base_offset=offset,
        leader_epoch=epoch,
    )


def data(*batches: bytes | bytearray, high_watermark: int = 0, log_start: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(
        high_watermark=high_watermark, log_start_offset=log_start, records=b"".join(map(bytes, batches)), **fields
    )


def failed(error: type) -> PartitionData:
    return PartitionData(error_code=error.code, high_watermark=-1, log_start_offset=-1, records=b"")  # type: ignore[attr-defined]


def partitions_of(request: FetchRequest) -> list[FetchPartition]:
    return [part for topic in request.topics for part in topic.partitions]


def test_the_first_fetch_names_everything_and_later_ones_the_changes(bench: Bench) -> None:
    log = bench.follow(partitions=3)
    first = bench.fetch()
    assert (first.session_id, first.session_epoch, len(partitions_of(first))) == (0, 0, 3)
    assert first.replica_state is not None
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (ME, EPOCH_OF_BROKER)
    bench.answer(data(batch(0), batch(1)), data(partition_index=1), data(partition_index=2))
    assert log.log_end_offset == 2
    second = bench.fetch()
    assert (second.session_id, second.session_epoch) == (5, 1)
    (part,) = partitions_of(second)
    assert (part.partition, part.fetch_offset, part.last_fetched_epoch, part.current_leader_epoch) == (0, 2, 0, 0)
    bench.answer()
    assert partitions_of(bench.fetch()) == []


def test_nothing_is_asked_before_the_broker_is_registered(bench: Bench) -> None:
    bench.follow()
    bench.broker_epoch = -1
    assert bench.poll() == {}
    assert bench.fetcher.next_ms(bench.broker.clock.ms) is not None
    bench.broker_epoch = EPOCH_OF_BROKER
    assert bench.poll()


def test_high_watermark_and_log_start_follow_the_leaders(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    bench.answer(data(batch(0), batch(1), batch(2), high_watermark=9, log_start=1))
    assert (log.high_watermark, log.log_start_offset) == (3, 1)
    bench.fetch()
    bench.answer(data(high_watermark=2, log_start=1))
    assert log.high_watermark == 3, "what was promised once stays so"


def test_partitions_added_during_a_long_fetch_do_not_wait_for_it(bench: Bench) -> None:
    bench.follow("t")
    bench.fetch()
    log = bench.follow("new")
    side = bench.poll()
    assert list(side) == [Lane.SIDE]
    request = side[Lane.SIDE]
    assert (request.session_id, request.session_epoch) == (0, -1)
    bench.answer(data(batch(0)), topic="new", lane=Lane.SIDE, session_id=0)
    assert log.log_end_offset == 1
    assert list(bench.poll()) == [Lane.SIDE], "it goes on there until the long fetch is over"
    bench.answer(data())
    main = bench.poll()[Lane.MAIN]
    assert [(topic.topic_id, topic.partitions[0].fetch_offset) for topic in main.topics] == [
        (bench.broker.image.topics["new"].id, 1)
    ]
    bench.answer(data(batch(1)), topic="new", lane=Lane.SIDE, session_id=0)
    assert bench.poll() == {}, "the long fetch, which is for less, brings it on"
    bench.answer(data(batch(1)), topic="new")
    assert log.log_end_offset == 2, "what came twice is taken once"


def test_logs_that_part_are_cut_where_they_do(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    bench.answer(data(batch(0), batch(1), batch(2)))
    bench.broker.change("t", leader=LEADER, isr=[LEADER])
    bench.fetcher.remove((bench.broker.image.topics["t"].id, 0))
    bench.fetcher.add(bench.broker.partition("t"))
    (part,) = partitions_of(bench.fetch())
    assert (part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch) == (1, 3, 0)
    bench.answer(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=2)))
    assert log.log_end_offset == 2
    (part,) = partitions_of(bench.fetch())
    assert part.fetch_offset == 2
    bench.answer(data(batch(2, epoch=1)))
    assert (log.log_end_offset, log.epochs.latest) == (3, 1)


def test_an_epoch_that_only_the_leader_knows_leads_to_the_one_before(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    bench.answer(data(batch(0, 0), batch(1, 2), batch(2, 4)))
    bench.fetch()
    bench.answer(data(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)))
    assert (log.log_end_offset, log.epochs.latest) == (2, 2)
    bench.fetch()
    bench.answer(data(diverging_epoch=EpochEndOffset(epoch=2, end_offset=1)))
    assert log.log_end_offset == 1


def test_a_fenced_partition_waits_for_its_next_leader(bench: Bench) -> None:
    bench.follow()
    bench.fetch()
    bench.answer(failed(FencedLeaderEpoch))
    assert [str(partition) for partition in bench.failed] == [str(bench.broker.partition("t"))]
    forgetting = bench.fetch()
    assert [each.partitions for each in forgetting.forgotten_topics_data] == [[0]]
    bench.answer(session_id=0)
    assert bench.poll() == {}


@pytest.mark.parametrize("error", [UnknownLeaderEpoch, NotLeader, UnknownTopicId])
def test_transient_errors_are_retried_with_a_growing_backoff(bench: Bench, error: type) -> None:
    bench.follow("t")
    pauses = []
    for _ in range(8):
        bench.fetch()
        bench.answer(failed(error))
        bench.fetch()  # which forgets the partition, and so the session
        bench.answer(session_id=0)
        assert bench.poll() == {}
        next_ms = bench.fetcher.next_ms(bench.broker.clock.ms)
        assert next_ms is not None
        pauses.append(next_ms - bench.broker.clock.ms)
        bench.broker.clock.ms = next_ms
    assert pauses == sorted(pauses)
    assert (pauses[0] <= 50, pauses[-1]) == (True, 1000)
    bench.fetch()
    bench.answer(data(batch(0)))
    assert bench.broker.log("t").log_end_offset == 1


def test_a_follower_restarts_at_a_later_log_start_of_its_leader(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    bench.answer(data(batch(0)))
    bench.fetch()
    bench.answer(failed(OffsetOutOfRange))
    request = bench.poll()[Lane.SIDE]
    assert isinstance(request, ListOffsetsRequest)
    assert (request.replica_id, request.topics[0].partitions[0].timestamp) == (ME, -1)
    bench.offset(100)
    request = bench.poll()[Lane.SIDE]
    assert request.topics[0].partitions[0].timestamp == -2
    bench.offset(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.epochs.latest == -1


def test_a_leader_that_ends_earlier_with_no_term_in_common_has_the_follower_cut(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    bench.answer(data(batch(0), batch(1), batch(2)))
    bench.fetch()
    bench.answer(failed(OffsetOutOfRange))
    bench.poll()
    bench.offset(1)
    assert log.log_end_offset == 1


def test_failed_offset_requests_are_retried(bench: Bench) -> None:
    bench.follow()
    bench.fetch()
    bench.answer(failed(OffsetOutOfRange))
    bench.poll()
    bench.offset(error_code=NotLeader.code)
    assert Lane.SIDE not in bench.poll()
    bench.broker.clock.ms += 1000
    assert isinstance(bench.poll()[Lane.SIDE], ListOffsetsRequest)
    bench.offset(error_code=FencedLeaderEpoch.code)
    assert bench.failed


def test_a_leaders_log_may_begin_inside_a_batch(bench: Bench) -> None:
    log = bench.follow()
    bench.broker.logs.truncate_fully_and_start_at("t", 0, 12, now_ms=bench.broker.clock.ms)
    bench.fetch()
    bench.answer(data(batch(10, records=5), high_watermark=15, log_start=12))
    assert (log.log_start_offset, log.log_end_offset) == (12, 15)


def test_a_session_that_the_leader_forgot_is_restarted_once_without_backoff(bench: Bench) -> None:
    bench.follow()
    bench.fetch()
    bench.answer(data())
    bench.fetch()
    bench.answer(error_code=FetchSessionIdNotFound.code)
    assert len(partitions_of(bench.fetch())) == 1
    bench.answer(error_code=FetchSessionIdNotFound.code)
    assert bench.poll() == {}
    bench.broker.clock.ms += 1000
    assert bench.poll()


def test_a_session_whose_leader_did_not_answer_is_ended_by_the_next_fetch(bench: Bench) -> None:
    """The leader may have it still, and would keep it until another session needs its slot."""
    bench.follow()
    bench.fetch()
    bench.answer(data())
    assert bench.fetch().session_id == 5
    bench.fetcher.handle_failure(Lane.MAIN, NetworkFailed("no answer"), bench.broker.clock.ms)
    bench.broker.clock.ms += 1000
    request = bench.fetch()
    assert (request.session_id, request.session_epoch, len(partitions_of(request))) == (5, 0, 1)
    bench.answer(error_code=FetchSessionIdNotFound.code)
    bench.broker.clock.ms += 1000
    request = bench.fetch()
    assert (request.session_id, request.session_epoch, len(partitions_of(request))) == (0, 0, 1)


def test_a_leader_that_cannot_be_reached_is_tried_again_after_pauses_that_grow(bench: Bench) -> None:
    bench.follow()
    pauses = []
    for _ in range(8):
        bench.fetch()
        bench.fetcher.handle_failure(Lane.MAIN, NetworkFailed("connection refused"), bench.broker.clock.ms)
        assert bench.poll() == {}
        next_ms = bench.fetcher.next_ms(bench.broker.clock.ms)
        assert next_ms is not None
        pauses.append(next_ms - bench.broker.clock.ms)
        bench.broker.clock.ms = next_ms
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1000
    assert len(partitions_of(bench.fetch())) == 1


def test_invalid_bytes_are_not_appended_and_fetched_again(bench: Bench) -> None:
    log = bench.follow()
    bench.fetch()
    spoiled = batch(0)
    spoiled[-1] ^= 1
    bench.answer(data(spoiled))
    assert (log.log_end_offset, bench.failed) == (0, [])
    bench.fetch()
    bench.answer(session_id=0)
    bench.broker.clock.ms += 1000
    bench.fetch()
    bench.answer(data(batch(0)))
    assert log.log_end_offset == 1


def test_a_disk_that_fails_ends_the_partition_and_not_the_fetcher(bench: Bench) -> None:
    bench.follow("t")
    bench.broker.create_topic("other", replicas=(LEADER, ME), leader=LEADER)
    bench.fetcher.add(bench.broker.partition("other"))
    bench.fetch()
    bench.broker.disk.fail_after(1)
    bench.answer(data(batch(0)))
    assert [partition.topic for partition in bench.failed] == ["t"]
    assert len(bench.fetcher.fetch_states) == 1


def test_a_throttled_follower_waits_unless_it_is_in_sync(bench: Bench) -> None:
    bench.follow("t")
    bench.fetch()
    bench.answer(data(batch(0), high_watermark=5))
    assert bench.throttle.counted > 0
    bench.throttle.is_reached = True
    forgetting = bench.fetch()
    assert forgetting.forgotten_topics_data
    bench.answer(session_id=0)
    assert bench.poll() == {}
    bench.throttle.is_reached = False
    bench.broker.clock.ms += 200
    bench.fetch()
    bench.answer(data(batch(1), batch(2), batch(3), batch(4), high_watermark=5))
    bench.throttle.is_reached = True
    assert bench.is_asked_for("t"), "it would leave the ISR otherwise"


def test_answers_of_an_earlier_term_count_for_nothing(bench: Bench) -> None:
    log = bench.follow()
    key = bench.broker.image.topics["t"].id, 0
    bench.fetch()
    bench.fetcher.remove(key)
    bench.answer(data(batch(0)))
    assert log.log_end_offset == 0
    bench.broker.change("t", leader=LEADER, isr=[LEADER])
    bench.fetcher.add(bench.broker.partition("t"))
    bench.fetch()
    bench.fetcher.remove(key)
    bench.broker.change("t", leader=LEADER, isr=[LEADER, ME])
    bench.fetcher.add(bench.broker.partition("t"))
    bench.answer(data(batch(0, epoch=1)))
    assert log.log_end_offset == 0


def test_a_log_without_epochs_is_truncated_to_the_high_watermark(bench: Bench) -> None:
    bench.broker.create_topic("t", replicas=(LEADER, ME), leader=LEADER)
    log = bench.broker.log("t")
    log.append_fetched(bytes(batch(0)) + bytes(batch(1)), now_ms=bench.broker.clock.ms)
    log.advance_high_watermark(1)
    log.epochs.clear()
    bench.fetcher.add(bench.broker.partition("t"))
    assert log.log_end_offset == 1
    assert bench.is_asked_for("t")
