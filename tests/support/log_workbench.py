"""A log for experiments: batches in one line, answers by brute force, and checks of all invariants."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from ottla.protocol.wire.batch import BatchHeader, read_batches
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.storage.disk import Disk, FileRange
from ottla.storage.log.aborted import Aborted
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import Appended, Isolation, PartitionLog
from ottla.storage.log.producers import Origin
from ottla.storage.log.reading import Location, Search, read
from ottla.storage.log.segment import LOG_SUFFIX, Segment
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import truncate_to
from ottla.storage.log_environment import LogEnvironment
from tests.support.simulated_disk import SimulatedDisk

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
FOREVER = 1 << 60
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0)


class Producer(NamedTuple):
    """The producer fields of a batch."""

    id: int
    sequence: int
    epoch: int = 0
    transactional: bool = False


def batch(
    *values: bytes | None,
    timestamps: int | list[int] = NOW,
    key: bytes | None = b"k",
    producer: Producer | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Return a batch as a producer sends it or, with a base offset and an epoch, as a leader stores it."""
    times = timestamps if isinstance(timestamps, list) else [timestamps] * len(values)
    records = [
        Record(base_offset + number, time, key, value)
        for number, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    producer_fields: dict[str, Any] = {}
    if producer is not None:
        producer_fields = {
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "base_sequence": producer.sequence,
            "transactional": producer.transactional,
        }
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        last_offset_delta=last_offset_delta,
        **producer_fields,
    )


class LogWorkbench:
    """A log with the failures that it reported, on a simulated disk by default."""

    def __init__(
        self,
        settings: LogSettings = SMALL,
        *,
        disk: Disk | None = None,
        directory: str = DIRECTORY,
        start_offset: int = 0,
        now_ms: int = NOW,
    ) -> None:
        self.disk = disk if disk is not None else SimulatedDisk(1)
        self.directory = directory
        self.failures: list[OSError] = []
        self.now_ms = now_ms
        self.environment = self._environment()
        if isinstance(self.disk, SimulatedDisk):
            self.disk.make_dir("/data")
            self.disk.sync_dir("/")
        self.log = create_log(self.environment, directory, "t", 0, settings, now_ms=now_ms, start_offset=start_offset)

    def _environment(self) -> LogEnvironment:
        return LogEnvironment(disk=self.disk, random=Random(1), on_failure=self.failures.append)

    @property
    def simulated(self) -> SimulatedDisk:
        assert isinstance(self.disk, SimulatedDisk)
        return self.disk

    def append(
        self, data: bytearray | None = None, *, epoch: int = 0, origin: Origin = Origin.CLIENT, count: int = 1
    ) -> Appended:
        """Append a batch, by default one of `count` small records."""
        data = data if data is not None else batch(*[b"value"] * count, timestamps=self.now_ms)
        return self.log.append(data, leader_epoch=epoch, now_ms=self.now_ms, origin=origin)

    def mark(self, producer_id: int, *, commit: bool, epoch: int = 0, producer_epoch: int = 0) -> Appended:
        return self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=0,
            leader_epoch=epoch,
            now_ms=self.now_ms,
        )

    def append_fetched(self, *data: bytes | bytearray) -> int:
        return self.log.append_fetched(b"".join(data), now_ms=self.now_ms)

    def truncate(self, offset: int) -> bool:
        return truncate_to(self.log, offset, now_ms=self.now_ms, producer_expiration_ms=FOREVER)

    def reopen(
        self, *, clean: bool = True, recovery_point: int | None = None, log_start: int | None = None
    ) -> PartitionLog:
        """Open the same files as a new log; for a clean stop, close the old log first."""
        old = self.log
        self.log = open_log(
            self._environment(),
            self.directory,
            "t",
            0,
            old.settings,
            clean=clean,
            now_ms=self.now_ms,
            recovery_point=old.recovery_point if recovery_point is None else recovery_point,
            log_start_offset=old.log_start_offset if log_start is None else log_start,
            producer_expiration_ms=FOREVER,
        )
        return self.log

    def restart(self) -> PartitionLog:
        self.log.close()
        return self.reopen()

    def values(self, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[bytes | None]:
        """Return the values that a follower reads from an offset on, fetch by fetch."""
        return [record.value for record in fetch_all(self.log, offset, max_bytes=max_bytes)]


def content(disk: Disk, part: FileRange | None) -> bytes:
    """Return the bytes that a socket would send."""
    return b"" if part is None else disk.pread(part.file.number, part.size, part.position)


def fetch_all(
    log: PartitionLog, offset: int | None = None, isolation: Isolation = Isolation.LOG_END, *, max_bytes: int = 1 << 20
) -> list[Record]:
    """Return the data records that a reader gets from an offset on, fetch by fetch."""
    fetch_offset = log.log_start_offset if offset is None else offset
    first, records = fetch_offset, []
    while fetch_offset < log.log_end_offset:
        data = content(log.environment.disk, read(log, fetch_offset, max_bytes, isolation).records)
        if not data:
            break
        before = fetch_offset
        for pos, header in read_batches(data, partial_tail=True):
            assert header.last_offset >= fetch_offset, "the fetch returned a batch again"
            fetch_offset = header.next_offset
            if not header.is_control:
                records += [record for record in read_records(data, pos, header) if record.offset >= first]
        assert fetch_offset > before, "the fetch returned no complete batch"
    return records


class StoredBatch(NamedTuple):
    """A batch in a segment's file."""

    segment: Segment
    position: int
    header: BatchHeader
    data: bytes


def stored_batches(log: PartitionLog) -> Iterator[StoredBatch]:
    """Verify and yield every batch of every segment."""
    for segment in log.segments:
        for position, header, block, start in segment.batches():
            yield StoredBatch(segment, position, header, bytes(block[start : start + header.size_bytes]))


def all_records(log: PartitionLog) -> list[tuple[Record, BatchHeader]]:
    """Return every record in the files, markers included, with the header of its batch."""
    return [(record, header) for _, _, header, data in stored_batches(log) for record in read_records(data, 0, header)]


def first_location(searches: Iterable[Search]) -> Location | None:
    """Return the answer of ListOffsets: the result of the first search that has one."""
    for search in searches:
        search.walk()
        if search.location is not None:
            return search.location
    return None


def aborted_of(log: PartitionLog) -> list[Aborted]:
    return [entry for segment in log.segments for entry in segment.aborted.read()]


def aborted_by_brute_force(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Return producer, first and last offset of each aborted transaction, from the batches alone."""
    first_offsets: dict[int, int] = {}
    aborted = []
    for _, _, header, data in stored_batches(log):
        if header.is_control:
            for record in read_records(data, 0, header):
                first = first_offsets.pop(header.producer_id, None)
                if first is not None and control_type(record) is ControlType.ABORT:
                    aborted.append((header.producer_id, first, record.offset))
        elif header.is_transactional and header.last_offset >= log.log_start_offset:
            first_offsets.setdefault(header.producer_id, header.base_offset)
    return aborted


def producers_of(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """Return the fields of each producer that a snapshot keeps."""
    return {producer.producer_id: tuple(producer.saved()) for producer in log.producers}


def check_epochs(log: PartitionLog, compacted_to: int = 0) -> None:
    """Check that each batch has the epoch that the log knows for it, and that each epoch but the first begins with a
    batch, unless compaction removed it."""
    entries = log.epochs.entries
    headers = [header for _, _, header, _ in stored_batches(log)]
    assert all(log.log_start_offset <= entry.start_offset <= log.log_end_offset for entry in entries)
    # After a crash the log may begin before the first epoch entry.
    epochs_start = entries[0].start_offset if entries else log.log_end_offset
    for header in headers:
        if header.base_offset >= epochs_start:
            assert log.epochs.epoch_for_offset(header.base_offset) == header.leader_epoch
    bases = {header.base_offset for header in headers}
    assert all(entry.start_offset in bases for entry in entries[1:] if entry.start_offset >= compacted_to)


def check_consistent(log: PartitionLog, compacted_to: int = 0) -> None:
    """Check all invariants of a log without using its indexes."""
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    assert log.producers.map_end_offset == log.log_end_offset
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    expected, epoch = bases[0], -1
    for segment in log.segments:
        assert segment.base_offset >= expected
        expected = segment.base_offset
        assert log.environment.disk.size_of(segment.path(LOG_SUFFIX)) == segment.size
        for _, header, _, _ in segment.batches():
            assert header.base_offset >= expected, "offsets overlap"
            assert header.leader_epoch >= epoch, "leader epochs decrease"
            expected, epoch = header.next_offset, header.leader_epoch
        check_indexes(segment)
    assert expected == log.log_end_offset
    check_epochs(log, compacted_to)
    check_aborted(log)


def check_indexes(segment: Segment) -> None:
    """Check that offset entries point to their batches, and that time entries have the largest timestamp so far."""
    headers = {position: header for position, header, _, _ in segment.batches()}
    for offset, position in segment.offsets.entries():
        assert headers[position].last_offset == segment.base_offset + offset
    for timestamp, offset in segment.times.entries():
        times = [h.max_timestamp for h in headers.values() if h.last_offset <= segment.base_offset + offset]
        assert max(times) == timestamp
    assert segment.max_timestamp == max((header.max_timestamp for header in headers.values()), default=-1)
    positions = [entry[1] for entry in segment.offsets.entries()]
    assert positions == sorted(set(positions))


def check_aborted(log: PartitionLog) -> None:
    """Check that the indexes of aborted transactions agree with the batches, as far as these still exist."""
    entries = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted_of(log)]
    expected = aborted_by_brute_force(log)
    for producer_id, first, last in expected:
        same_end = [entry for entry in entries if entry[0] == producer_id and entry[2] == last]
        assert same_end, f"the index lacks an aborted transaction: {(producer_id, first, last)}"
        assert same_end[0][1] <= first
