"""Reading: by offset with every limit, aborted transactions of a range, and by timestamp, against brute force."""

from random import Random

import pytest

from ottla.protocol.errors import OffsetOutOfRange
from ottla.protocol.wire.batch import TimestampType, read_batches
from ottla.protocol.wire.compression import Compression
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import (
    aborted_between,
    available_bytes,
    earliest,
    read,
    searches,
    searches_for_latest,
)
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start
from tests.support.log_workbench import (
    NOW,
    LogWorkbench,
    Producer,
    aborted_by_brute_force,
    all_records,
    batch,
    content,
    fetch_all,
    first_location,
    stored_batches,
)


@pytest.fixture
def bench() -> LogWorkbench:
    """Thirty batches of three records, in several segments."""
    bench = LogWorkbench()
    for number in range(30):
        bench.append(batch(b"%d" % number, b"second", b"third"))
    bench.log.advance_high_watermark(90)
    return bench


def first_offsets(
    bench: LogWorkbench, offset: int, max_bytes: int, isolation: Isolation = Isolation.LOG_END
) -> list[int]:
    data = content(bench.disk, read(bench.log, offset, max_bytes, isolation).records)
    return [header.base_offset for _, header in read_batches(data, partial_tail=True)]


class TestByOffset:
    def test_an_offset_inside_a_batch_returns_the_whole_batch(self, bench: LogWorkbench) -> None:
        for offset in range(90):
            assert first_offsets(bench, offset, 1)[0] == offset // 3 * 3

    def test_the_first_batch_is_returned_whole_however_large(self, bench: LogWorkbench) -> None:
        assert first_offsets(bench, 0, 1) == [0]

    def test_no_more_bytes_than_asked_for(self, bench: LogWorkbench) -> None:
        size = next(iter(stored_batches(bench.log))).header.size_bytes
        for max_bytes in range(size, 5 * size, 17):
            found = read(bench.log, 0, max_bytes, Isolation.LOG_END).records
            assert found is not None
            assert len(found) == max_bytes
            assert first_offsets(bench, 0, max_bytes) == [number * 3 for number in range(max_bytes // size)]

    @pytest.mark.parametrize("offset", [-1, 91])
    def test_outside_of_the_log_is_an_error(self, bench: LogWorkbench, offset: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            read(bench.log, offset, 100, Isolation.LOG_END)

    def test_at_the_end_there_is_nothing_yet(self, bench: LogWorkbench) -> None:
        assert read(bench.log, 90, 100, Isolation.LOG_END) == (None, None)
        assert read(bench.log, 90, 100, Isolation.LAST_STABLE) == (None, [])

    def test_before_the_log_start_is_an_error(self, bench: LogWorkbench) -> None:
        advance_log_start(bench.log, 31)
        with pytest.raises(OffsetOutOfRange):
            read(bench.log, 30, 100, Isolation.LOG_END)
        assert first_offsets(bench, 31, 1) == [30]

    @pytest.mark.parametrize("max_bytes", [1, 150, 10_000])
    def test_a_reader_gets_everything_once(self, bench: LogWorkbench, max_bytes: int) -> None:
        for start in (0, 1, 44, 89):
            found = [record.offset for record in fetch_all(bench.log, start, max_bytes=max_bytes)]
            assert found == list(range(start, 90))

    def test_gaps_are_stepped_over(self) -> None:
        bench = LogWorkbench()
        for offset in range(0, 200, 10):
            bench.append_fetched(batch(b"a", b"b", base_offset=offset, leader_epoch=0))
        for offset in range(192):
            expected = next(base for base in range(0, 200, 10) if base + 1 >= offset)
            assert first_offsets(bench, offset, 1) == [expected]

    def test_a_compacted_end_of_a_segment_is_stepped_over(self, bench: LogWorkbench) -> None:
        first, second = bench.log.segments[:2]
        first.truncate(list(stored_batches(bench.log))[1].position, 3)
        assert first_offsets(bench, 4, 1) == [second.base_offset]
        assert available_bytes(bench.log, 4, Isolation.LOG_END, enough=10) == second.size


class TestLimits:
    def test_consumers_stop_at_the_high_watermark(self) -> None:
        bench = LogWorkbench()
        for _ in range(30):
            bench.append(count=3)
        for mark in range(0, 91, 3):
            bench.log.advance_high_watermark(mark)
            for offset in (0, 40, 89):
                found = [r.offset for r in fetch_all(bench.log, offset, Isolation.HIGH_WATERMARK, max_bytes=400)]
                assert found == list(range(offset, mark))
            assert available_bytes(bench.log, 0, Isolation.HIGH_WATERMARK, enough=1 << 30) == sum(
                header.size_bytes for _, _, header, _ in stored_batches(bench.log) if header.last_offset < mark
            )

    def test_a_limit_that_moves_back_is_found_again(self) -> None:
        bench = LogWorkbench()
        for _ in range(6):
            bench.append(count=3)
        bench.log.advance_high_watermark(12)
        assert len(fetch_all(bench.log, 0, Isolation.HIGH_WATERMARK)) == 12
        bench.truncate(9)
        bench.append(batch(bytes(200), b"b", b"c"), epoch=1)
        bench.append(count=3, epoch=1)
        bench.log.advance_high_watermark(12)
        assert len(fetch_all(bench.log, 0, Isolation.HIGH_WATERMARK)) == 12

    def test_enough_is_enough(self, bench: LogWorkbench) -> None:
        assert 500 <= available_bytes(bench.log, 0, Isolation.LOG_END, enough=500) < 2000
        assert available_bytes(bench.log, 90, Isolation.LOG_END, enough=500) == 0

    def test_committed_readers_stop_before_an_open_transaction(self, bench: LogWorkbench) -> None:
        bench.append(batch(b"open", producer=Producer(1, 0, transactional=True)))
        bench.append()
        bench.log.advance_high_watermark(92)
        assert len(fetch_all(bench.log, 80, Isolation.LAST_STABLE)) == 10
        assert len(fetch_all(bench.log, 80, Isolation.HIGH_WATERMARK)) == 12

    def test_a_log_start_inside_a_transaction_is_the_last_stable_offset(self, bench: LogWorkbench) -> None:
        bench.append(batch(b"a", b"b", b"c", producer=Producer(1, 0, transactional=True)))
        bench.log.advance_high_watermark(93)
        advance_log_start(bench.log, 92)
        assert bench.log.last_stable_offset == 92


@pytest.mark.parametrize("seed", range(10))
def test_the_aborted_transactions_of_a_range_are_those_that_overlap_it(seed: int) -> None:
    random = Random(seed)
    bench = LogWorkbench(LogSettings(segment_bytes=700, index_interval_bytes=200))
    sequences: dict[int, int] = {}
    for _ in range(150):
        producer_id = random.randrange(5)
        if bench.log.producers.is_open(producer_id, 0) and random.random() < 0.4:
            bench.mark(producer_id, commit=random.random() < 0.4)
        elif random.random() < 0.7:
            sequence = sequences.get(producer_id, 0)
            bench.append(batch(b"a", b"b", producer=Producer(producer_id, sequence, transactional=True)))
            sequences[producer_id] = sequence + 2
        else:
            bench.append()
    log = bench.log
    log.advance_high_watermark(log.log_end_offset)
    every = aborted_by_brute_force(log)
    assert len(every) > 10
    for _ in range(100):
        offset = random.randrange(log.log_end_offset)
        end = random.randint(offset + 1, log.log_end_offset)
        expected = [(p, first, last) for p, first, last in every if last >= offset and first < end]
        assert [tuple(entry)[:3] for entry in aborted_between(log, offset, end)] == expected
        fetched = read(log, offset, random.choice((1, 300, 900)), Isolation.LAST_STABLE)
        assert fetched.aborted is not None
        data = content(bench.disk, fetched.records)
        headers = [header for _, header in read_batches(data, partial_tail=True)]
        seen = {
            (p, first, last) for p, first, last in every for h in headers if first <= h.last_offset and last >= offset
        }
        assert seen <= {tuple(entry)[:3] for entry in fetched.aborted}


class TestByTimestamp:
    def check(self, bench: LogWorkbench) -> None:
        log = bench.log
        visible = [(r, h) for r, h in all_records(log) if r.offset >= log.log_start_offset]
        times = sorted({record.timestamp for record, _ in visible})
        for time in [*times, *(time + 1 for time in times), 0]:
            found = first_location(searches(log, time))
            expected = next(((r.offset, r.timestamp, h.leader_epoch) for r, h in visible if r.timestamp >= time), None)
            assert found == expected
        latest = max(visible, key=lambda pair: pair[0].timestamp)
        location = first_location(searches_for_latest(log))
        assert location == (latest[0].offset, latest[0].timestamp, latest[1].leader_epoch)

    @pytest.mark.parametrize("compression", Compression)
    @pytest.mark.parametrize("clock", TimestampType)
    @pytest.mark.parametrize("interval", [0, 300])
    def test_the_answer_is_that_of_a_walk(self, compression: Compression, clock: TimestampType, interval: int) -> None:
        random = Random(interval)
        settings = LogSettings(segment_bytes=900, index_interval_bytes=interval, message_timestamp_type=clock)
        bench = LogWorkbench(settings)
        for epoch in range(40):
            bench.now_ms = NOW + epoch
            times = [NOW + random.randrange(100) for _ in range(random.randint(1, 4))]
            bench.append(batch(*[b"v"] * len(times), timestamps=times, compression=compression), epoch=epoch)
        self.check(bench)
        bench.restart()
        self.check(bench)
        bench.truncate(bench.log.log_end_offset // 2)
        self.check(bench)
        bench.log.advance_high_watermark(bench.log.log_end_offset)
        for start in range(1, bench.log.log_end_offset, 5):
            advance_log_start(bench.log, start)
            self.check(bench)

    def test_a_latest_record_before_the_log_start_does_not_count(self) -> None:
        bench = LogWorkbench()
        for time in (900, 100, 700, 300):
            bench.append(batch(b"a", timestamps=NOW + time))
        bench.log.advance_high_watermark(4)
        advance_log_start(bench.log, 1)
        assert first_location(searches_for_latest(bench.log)) == (2, NOW + 700, 0)

    def test_an_empty_log_has_no_times(self) -> None:
        bench = LogWorkbench()
        assert first_location(searches(bench.log, 0)) is None
        assert first_location(searches_for_latest(bench.log)) is None
        assert earliest(bench.log) == (0, -1, -1)

    def test_records_without_a_timestamp_are_not_found(self) -> None:
        bench = LogWorkbench()
        bench.append(batch(b"a", timestamps=-1))
        assert first_location(searches(bench.log, 0)) is None
        assert first_location(searches_for_latest(bench.log)) is None

    def test_the_earliest_offset_comes_with_its_epoch(self) -> None:
        bench = LogWorkbench()
        for epoch in range(5):
            bench.append(count=2, epoch=epoch)
        bench.log.advance_high_watermark(10)
        advance_log_start(bench.log, 5)
        assert earliest(bench.log) == (5, -1, 2)
