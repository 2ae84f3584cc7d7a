"""Producer state: what is accepted, what is a repeat, which transactions hold readers back. See also
tests/conformance/interop.
"""

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import (
    ApiError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.protocol.wire.batch import CONTROL_BIT, MAX_INT32, TRANSACTIONAL_BIT, BatchHeader
from ottla.storage.log.producer_snapshot import BatchSeen
from ottla.storage.log.producers import Completed, LastEntry, Origin, Producers

CLIENT, COORDINATOR, REPLICATION = Origin
NOT_REPLICATED = [CLIENT, COORDINATOR]
PRODUCER = 7


def batch(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = PRODUCER,
    transactional: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchHeader(
        0, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer, epoch, sequence, count
    )  # fmt: skip


class Partition:
    """A log that keeps nothing but its end and its producers."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, *headers: BatchHeader, origin: Origin = CLIENT, at_once: bool = False) -> BatchSeen | None:
        """Append as one: a single batch on the short path, by default."""
        if len(headers) == 1 and not at_once:
            (header,) = headers
            if seen := self.producers.check(header, origin):
                return seen
            self.producers.apply(header, self.end)
            self.end += header.last_offset_delta + 1
        else:
            changes = self.producers.begin(origin)
            end = self.end
            for header in headers:
                if seen := changes.add(header, end):
                    return seen
                end += header.last_offset_delta + 1
            assert changes.commit() == []
            self.end = end
        self.producers.map_end_offset = self.end
        return None

    def mark(
        self,
        *,
        commit: bool = True,
        epoch: int = 0,
        producer: int = PRODUCER,
        coordinator_epoch: int = 0,
        origin: Origin = COORDINATOR,
        version: int | None = 0,
        timestamp: int = 2000,
    ) -> Completed | None:
        header = batch(-1, epoch=epoch, producer=producer, transactional=True, timestamp=timestamp)
        changes = self.producers.begin(origin)
        completed = changes.add_marker(
            header._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT),
            self.end,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
            transaction_version=version,
        )
        for done in changes.commit():
            self.producers.complete(done)
        self.end += 1
        self.producers.map_end_offset = self.end
        return completed

    def state(self, producer: int = PRODUCER) -> tuple[object, ...]:
        known = self.producers.get(producer)
        if known is None:
            return ()
        fields = known.epoch, known.coordinator_epoch, known.last_timestamp, known.transaction_start
        return *fields, tuple(known.batches)


@pytest.fixture
def log() -> Partition:
    return Partition()


@pytest.fixture(params=[False, True], ids=["short path", "long path"])
def append(request: pytest.FixtureRequest, log: Partition) -> Callable[..., BatchSeen | None]:
    """Both ways to append one batch."""
    at_once: bool = request.param
    return lambda header, origin=CLIENT: log.append(header, origin=origin, at_once=at_once)


Append = Callable[..., BatchSeen | None]


class TestSequences:
    def test_batches_that_follow_each_other_are_taken(self, log: Partition, append: Append) -> None:
        for sequence in range(0, 30, 3):
            assert append(batch(sequence, 3)) is None
        assert log.end == 30

    @pytest.mark.parametrize("sequence", [0, 2, 3, 5, 6])
    def test_a_gap_or_an_overlap_is_refused(self, append: Append, sequence: int) -> None:
        append(batch(0, 3))
        append(batch(3, 1))
        with pytest.raises(OutOfOrderSequenceNumber, match=f"sent sequence {sequence}, not 4"):
            append(batch(sequence, 2))

    def test_an_unknown_producer_may_start_anywhere(self, append: Append) -> None:
        append(batch(17))
        append(batch(18))
        with pytest.raises(OutOfOrderSequenceNumber):
            append(batch(20))

    def test_sequences_wrap_to_zero_after_the_largest(self, log: Partition, append: Append) -> None:
        append(batch(MAX_INT32 - 1, 2))
        append(batch(0, 2))
        append(batch(2))
        assert append(batch(MAX_INT32 - 1, 2)) == BatchSeen(MAX_INT32, 1, 1, 1000)

    def test_one_batch_may_run_over_the_largest(self, append: Append) -> None:
        append(batch(MAX_INT32 - 1, 4))
        append(batch(2))
        seen = append(batch(MAX_INT32 - 1, 4))
        assert seen is not None
        assert (seen.base_sequence, seen.last_sequence) == (MAX_INT32 - 1, 1)

    def test_a_new_epoch_starts_with_sequence_zero(self, log: Partition, append: Append) -> None:
        append(batch(0))
        with pytest.raises(OutOfOrderSequenceNumber, match="starts epoch 1 with sequence 1, not 0"):
            append(batch(1, epoch=1))
        append(batch(0, epoch=1))
        assert log.state()[0] == 1

    @pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
    def test_only_clients_are_held_to_their_sequence(self, append: Append, origin: Origin) -> None:
        append(batch(0))
        append(batch(9), origin)
        append(batch(9, epoch=3), origin)

    def test_batches_of_coordinators_have_no_sequence(self, log: Partition, append: Append) -> None:
        append(batch(-1, 3), COORDINATOR)
        assert log.state()[-1] == (BatchSeen(-1, 2, 2, 1000),)


class TestRepeats:
    def test_each_of_the_last_five_batches_is_recognized(self, log: Partition, append: Append) -> None:
        for sequence in range(6):
            append(batch(sequence, timestamp=1000 + sequence))
        for sequence in range(1, 6):
            assert append(batch(sequence)) == BatchSeen(sequence, sequence, 0, 1000 + sequence)
        assert log.end == 6

    def test_the_sixth_is_out_of_order(self, log: Partition, append: Append) -> None:
        for sequence in range(6):
            append(batch(sequence))
        with pytest.raises(OutOfOrderSequenceNumber):
            append(batch(0))

    def test_both_sequences_must_match(self, append: Append) -> None:
        append(batch(0, 2))
        append(batch(2, 2))
        for header in (batch(0, 4), batch(2, 1), batch(3, 1), batch(1, 1)):
            with pytest.raises(OutOfOrderSequenceNumber):
                append(header)

    def test_another_epoch_repeats_nothing(self, log: Partition, append: Append) -> None:
        append(batch(0, epoch=1))
        assert append(batch(0, epoch=2)) is None
        assert log.end == 2

    def test_an_unknown_producer_repeats_nothing(self, log: Partition) -> None:
        assert log.producers.check(batch(0), CLIENT) is None

    def test_only_clients_batches_can_be_duplicates(self, log: Partition, append: Append) -> None:
        append(batch(0))
        assert append(batch(0), REPLICATION) is None
        assert log.end == 2

    def test_a_repeat_names_the_offsets_of_the_first_time(self, log: Partition, append: Append) -> None:
        log.end = 100
        append(batch(0, 5))
        seen = append(batch(0, 5))
        assert seen is not None
        assert (seen.base_offset, seen.last_offset) == (100, 104)


class TestEpochs:
    @pytest.mark.parametrize("origin", NOT_REPLICATED)
    def test_an_older_epoch_is_refused(self, append: Append, origin: Origin) -> None:
        append(batch(0, epoch=3))
        with pytest.raises(InvalidProducerEpoch, match="epoch 2 of producer 7 is older than 3"):
            append(batch(1, epoch=2), origin)

    def test_a_replica_accepts_what_its_leader_accepted(
        self, log: Partition, append: Append, caplog: pytest.LogCaptureFixture
    ) -> None:
        append(batch(0, epoch=3))
        append(batch(1, epoch=2), REPLICATION)
        assert log.state()[0] == 2
        assert "older than 3" in caplog.text

    def test_a_new_epoch_forgets_the_batches_of_the_old(self, log: Partition, append: Append) -> None:
        append(batch(0))
        append(batch(0, 2, epoch=1))
        assert log.state()[-1] == (BatchSeen(1, 2, 1, 1000),)


class TestTransactions:
    def test_the_first_transactional_batch_begins_one(self, log: Partition, append: Append) -> None:
        log.end = 5
        append(batch(0, 2, transactional=True))
        append(batch(2, 2, transactional=True))
        assert log.producers.first_unstable_offset == 5
        assert log.producers.is_open(PRODUCER, 0)
        ((first, producer),) = log.producers.open_transactions()
        assert (first, producer.producer_id) == (5, PRODUCER)

    @pytest.mark.parametrize("origin", Origin)
    def test_a_batch_outside_of_the_open_transaction_is_refused(self, append: Append, origin: Origin) -> None:
        append(batch(0, transactional=True))
        with pytest.raises(InvalidTxnState, match="open since offset 0"):
            append(batch(1), origin)

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_completes_the_transaction(self, log: Partition, commit: bool) -> None:
        log.append(batch(0, 3, transactional=True))
        assert log.mark(commit=commit, coordinator_epoch=4) == Completed(PRODUCER, 0, 3, aborted=not commit)
        assert log.state()[:4] == (0, 4, 2000, None)
        assert not log.producers.is_open(PRODUCER, 0)

    def test_a_marker_without_a_transaction_completes_nothing(self, log: Partition) -> None:
        assert log.mark(epoch=5, coordinator_epoch=4) is None
        assert log.state() == (5, 4, 2000, None, ())
        assert log.producers.first_unstable_offset is None

    def test_after_a_marker_of_the_same_epoch_sequences_go_on(self, log: Partition) -> None:
        log.append(batch(0, transactional=True))
        log.mark()
        log.append(batch(1, transactional=True))
        with pytest.raises(OutOfOrderSequenceNumber):
            log.append(batch(0, 2, transactional=True))

    def test_a_marker_that_raises_the_epoch_starts_sequences_again(self, log: Partition) -> None:
        log.append(batch(0, transactional=True))
        log.mark(epoch=1)
        assert log.state()[-1] == ()
        with pytest.raises(OutOfOrderSequenceNumber, match="sent sequence 1, not 0"):
            log.append(batch(1, epoch=1))
        with pytest.raises(InvalidProducerEpoch):
            log.append(batch(1))
        log.append(batch(0, epoch=1))

    def test_a_producer_known_only_by_a_marker_starts_with_sequence_zero(self, log: Partition) -> None:
        log.mark()
        with pytest.raises(OutOfOrderSequenceNumber):
            log.append(batch(4))
        log.append(batch(0))

    def test_a_marker_of_an_older_epoch_is_refused(self, log: Partition) -> None:
        log.append(batch(0, epoch=3, transactional=True))
        before = log.state()
        with pytest.raises(InvalidProducerEpoch, match="marker's epoch 2 of producer 7 is older than 3"):
            log.mark(epoch=2)
        assert log.state() == before
        assert log.mark(epoch=2, origin=REPLICATION, version=None) is not None

    def test_a_replaced_coordinator_is_fenced(self, log: Partition) -> None:
        log.append(batch(0, transactional=True))
        log.mark(coordinator_epoch=5)
        log.append(batch(1, transactional=True))
        with pytest.raises(TransactionCoordinatorFenced, match="epoch 4, older than 5"):
            log.mark(coordinator_epoch=4)
        assert log.mark(coordinator_epoch=4, origin=REPLICATION, version=None) is not None
        assert log.state()[1] == 4

    def test_from_version_2_a_marker_must_raise_the_epoch(self, log: Partition) -> None:
        log.append(batch(0, epoch=3, transactional=True))
        with pytest.raises(InvalidProducerEpoch, match="marker's epoch 3 of producer 7 is not above 3"):
            log.mark(epoch=3, version=2)
        assert log.mark(epoch=4, version=2) is not None

    def test_from_version_2_a_repeated_marker_is_written_again(self, log: Partition) -> None:
        log.append(batch(0, epoch=3, transactional=True))
        log.mark(epoch=4, version=2)
        assert log.mark(epoch=4, version=2) is None
        with pytest.raises(InvalidProducerEpoch):
            log.mark(epoch=3, version=2)

    def test_from_version_2_the_last_epoch_may_end_its_own_transaction(self, log: Partition) -> None:
        log.append(batch(0, epoch=32767, transactional=True))
        assert log.mark(epoch=32767, version=2) is not None

    def test_only_a_replica_may_not_know_the_version(self, log: Partition) -> None:
        with pytest.raises(AssertionError):
            log.mark(version=None)


class TestStability:
    def test_the_earliest_open_transaction_is_the_first_unstable_offset(self, log: Partition) -> None:
        log.append(batch(0, 10, producer=1, transactional=True))
        log.append(batch(0, 10, producer=2, transactional=True))
        log.mark(producer=2)
        assert log.producers.first_unstable_offset == 0
        log.mark(producer=1)
        assert log.producers.first_unstable_offset == 0
        assert not list(log.producers.open_transactions())

    def test_an_ended_transaction_is_unstable_until_its_marker_is_replicated(self, log: Partition) -> None:
        log.append(batch(0, 10, transactional=True))
        log.mark()
        log.producers.on_high_watermark(10)
        assert log.producers.first_unstable_offset == 0
        log.producers.on_high_watermark(11)
        assert log.producers.first_unstable_offset is None

    def test_transactions_become_stable_in_the_order_of_their_markers(self, log: Partition) -> None:
        for producer in (1, 2, 3):
            log.append(batch(0, 10, producer=producer, transactional=True))
        log.mark(producer=2)  # at 30
        log.mark(producer=1)  # at 31
        log.producers.on_high_watermark(31)
        assert log.producers.first_unstable_offset == 0
        log.producers.on_high_watermark(32)
        assert log.producers.first_unstable_offset == 20

    def test_transactions_before_the_log_start_are_stable(self, log: Partition) -> None:
        log.append(batch(0, 10, transactional=True))
        log.mark()
        log.producers.on_log_start(11)
        assert log.producers.first_unstable_offset is None
        assert log.producers.map_end_offset == 11
        log.producers.on_log_start(40)
        assert log.producers.map_end_offset == 40

    def test_the_stable_offset_after_an_abort_is_where_others_are_still_open(self, log: Partition) -> None:
        log.append(batch(0, 10, producer=1, transactional=True))
        log.append(batch(0, 10, producer=2, transactional=True))
        producers = log.producers
        assert producers.last_stable_offset_of(Completed(1, 0, 20, aborted=True)) == 10
        assert producers.last_stable_offset_of(Completed(2, 10, 20, aborted=True)) == 0
        log.mark(producer=2, commit=False)
        assert producers.last_stable_offset_of(Completed(1, 0, 21, aborted=True)) == 22


class TestSeveralBatches:
    def test_they_follow_each_other(self, log: Partition) -> None:
        log.append(batch(0))
        log.append(batch(1, 2), batch(0, producer=9), batch(3))
        assert [seen.last_sequence for seen in log.producers.get(PRODUCER).batches] == [0, 2, 3]  # type: ignore[union-attr]
        assert len(log.producers) == 2

    @pytest.mark.parametrize(
        "bad", [batch(9), batch(2, epoch=-1), batch(5, epoch=1), batch(2, transactional=False), batch(0, producer=1)]
    )
    def test_nothing_changes_when_a_later_one_is_refused(self, log: Partition, bad: BatchHeader) -> None:
        log.append(batch(0, transactional=True))
        log.append(batch(4, producer=1, epoch=1))
        before = log.state(), log.state(1), log.producers.snapshot(), log.producers.first_unstable_offset
        with pytest.raises(ApiError):
            log.append(batch(0, producer=2, transactional=True), batch(1, transactional=True), bad)
        assert before == (log.state(), log.state(1), log.producers.snapshot(), log.producers.first_unstable_offset)

    def test_nothing_changes_when_one_is_a_repeat(self, log: Partition) -> None:
        log.append(batch(0))
        before = log.producers.snapshot()
        assert log.append(batch(0, producer=2), batch(0)) is not None
        assert log.producers.snapshot() == before

    def test_an_unknown_producer_may_leave_gaps_within_its_first_append(self, log: Partition) -> None:
        log.append(batch(5), batch(9))
        with pytest.raises(OutOfOrderSequenceNumber):
            log.append(batch(11), batch(12))

    def test_a_marker_that_raises_the_epoch_forgets_the_batches_before_it(self, log: Partition) -> None:
        changes = log.producers.begin(REPLICATION)
        changes.add(batch(0, transactional=True), 0)
        changes.add_marker(batch(-1, epoch=1, transactional=True), 1, commit=True, coordinator_epoch=0, timestamp=5)
        changes.commit()
        assert log.state() == (1, 0, 5, None, ())

    def test_only_the_last_five_are_kept(self, log: Partition) -> None:
        log.append(batch(0))
        log.append(*(batch(sequence) for sequence in range(1, 8)))
        assert log.producers.check(batch(3), CLIENT) is not None
        with pytest.raises(OutOfOrderSequenceNumber):
            log.producers.check(batch(2), CLIENT)

    def test_transactions_begin_in_the_order_of_the_log(self, log: Partition) -> None:
        log.append(*(batch(0, producer=producer, transactional=True) for producer in (5, 3, 4)), origin=REPLICATION)
        assert [(first, p.producer_id) for first, p in log.producers.open_transactions()] == [(0, 5), (1, 3), (2, 4)]

    def test_a_replica_may_take_whole_transactions_at_once(self, log: Partition) -> None:
        changes = log.producers.begin(REPLICATION)
        for number in range(3):
            changes.add(batch(number, transactional=True), number * 2)
            changes.add_marker(
                batch(-1, transactional=True), number * 2 + 1, commit=False, coordinator_epoch=0, timestamp=5
            )
        completed = changes.commit()
        assert completed == [Completed(PRODUCER, n * 2, n * 2 + 1, aborted=True) for n in range(3)]
        for done in completed:
            log.producers.complete(done)
        assert not list(log.producers.open_transactions())
        assert log.producers.first_unstable_offset == 0


class TestForgetting:
    def test_idle_producers_expire(self, log: Partition) -> None:
        log.append(batch(0, producer=1, timestamp=1000))
        log.append(batch(0, producer=2, timestamp=1001))
        log.append(batch(0, producer=3, timestamp=0, transactional=True))
        assert log.producers.expire(1100, 100) == 1
        assert [producer.producer_id for producer in log.producers] == [2, 3]

    def test_a_snapshot_restores_all_but_older_batches(self, log: Partition) -> None:
        log.append(batch(0))
        log.append(batch(1, 3, timestamp=1500))
        log.append(batch(0, producer=9, transactional=True))
        log.append(batch(0, producer=8, transactional=True))
        log.mark(producer=9, coordinator_epoch=2)
        loaded = Producers()
        # In no order, as Kafka writes them.
        loaded.load(log.producers.snapshot()[::-1], log.end, now_ms=2000, expiration_ms=10_000)
        assert loaded.map_end_offset == log.end
        assert sorted(loaded.snapshot()) == sorted(log.producers.snapshot())
        assert loaded.check(batch(1, 3), CLIENT) == BatchSeen(3, 3, 2, 1500)
        with pytest.raises(OutOfOrderSequenceNumber):
            loaded.check(batch(0), CLIENT)
        assert loaded.first_unstable_offset == 5
        assert loaded.check(batch(4), CLIENT) is None

    def test_loading_skips_the_expired_but_those_with_an_open_transaction(self, log: Partition) -> None:
        log.append(batch(0, producer=1, timestamp=1000))
        log.append(batch(0, producer=2, timestamp=1000, transactional=True))
        log.append(batch(0, producer=3, timestamp=1001))
        loaded = Producers()
        loaded.load(log.producers.snapshot(), 3, now_ms=1100, expiration_ms=100)
        assert [producer.producer_id for producer in loaded] == [2, 3]

    def test_loading_replaces_the_state(self, log: Partition) -> None:
        log.append(batch(0, transactional=True))
        log.mark()
        log.append(batch(1, transactional=True))
        log.producers.load([], 1, now_ms=0, expiration_ms=1)
        assert (len(log.producers), log.producers.first_unstable_offset, log.producers.map_end_offset) == (0, None, 1)

    def test_open_transactions_are_loaded_in_the_order_of_the_log(self, log: Partition) -> None:
        for producer in (5, 3, 4):
            log.append(batch(0, producer=producer, transactional=True))
        loaded = Producers()
        loaded.load(sorted(log.producers.snapshot()), 3, now_ms=0, expiration_ms=1000)
        assert [first for first, _ in loaded.open_transactions()] == [0, 1, 2]

    def test_compaction_learns_each_producers_last_data(self, log: Partition) -> None:
        log.append(batch(0, 3))
        log.mark(producer=8, epoch=2)
        assert log.producers.last_entries() == {PRODUCER: LastEntry(2, 0), 8: LastEntry(None, 2)}


def test_the_log_may_have_changed_a_batchs_timestamp(log: Partition) -> None:
    log.producers.apply(batch(0, timestamp=1000), 0, 5000)
    assert log.state() == (0, -1, 5000, None, (BatchSeen(0, 0, 0, 5000),))


def test_a_partition_without_producers_costs_next_to_nothing() -> None:
    producers = Producers()
    parts = [producers, *(getattr(producers, name) for name in producers.__slots__)]
    assert sum(map(sys.getsizeof, parts)) < 400


BATCHES = st.builds(
    batch,
    st.sampled_from([0, 0, 1, 2, 3, 4, MAX_INT32]),
    st.integers(1, 3),
    epoch=st.integers(0, 2),
    producer=st.integers(1, 2),
    transactional=st.booleans(),
)


@given(st.lists(st.tuples(BATCHES, st.sampled_from(Origin))))
def test_both_paths_decide_and_remember_the_same(steps: list[tuple[BatchHeader, Origin]]) -> None:
    short, long = Partition(), Partition()
    for header, origin in steps:
        outcomes: list[object] = []
        for log, at_once in ((short, False), (long, True)):
            try:
                outcomes.append(log.append(header, origin=origin, at_once=at_once))
            except ApiError as error:
                outcomes.append((error.code, error.message))
        assert outcomes[0] == outcomes[1]
        assert [short.state(producer) for producer in (1, 2)] == [long.state(producer) for producer in (1, 2)]
        assert short.producers.first_unstable_offset == long.producers.first_unstable_offset
