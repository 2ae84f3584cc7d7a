"""A log to try things on: batches in one line, answers by brute force, and a list of all that must always hold."""

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
    """Who sends a batch, and which one it is."""

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
    """A batch as a producer sends it, or with a base offset and an epoch as a leader keeps it."""
    times = timestamps if isinstance(timestamps, list) else [timestamps] * len(values)
    given = [
        Record(base_offset + number, time, key, value)
        for number, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    who: dict[str, Any] = {}
    if producer is not None:
        who = {
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "base_sequence": producer.sequence,
            "transactional": producer.transactional,
        }
    return build_batch(
        given,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        last_offset_delta=last_offset_delta,
        **who,
    )


class Bench:
    """A log on a simulated disk, unless another is given, with what it reported."""

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
        """One batch; of `count` small records unless it is given."""
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

    def fetched(self, *data: bytes | bytearray) -> int:
        return self.log.append_fetched(b"".join(data), now_ms=self.now_ms)

    def truncate(self, offset: int) -> bool:
        return truncate_to(self.log, offset, now_ms=self.now_ms, producer_expiration_ms=FOREVER)

    def reopen(
        self, *, clean: bool = True, recovery_point: int | None = None, log_start: int | None = None
    ) -> PartitionLog:
        """The same files with another log; after a clean stop, close the first one before."""
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
        """What a follower reads from an offset on, with one fetch after the other."""
        return [record.value for record in fetch_all(self.log, offset, max_bytes=max_bytes)]


def content(disk: Disk, found: FileRange | None) -> bytes:
    """The bytes that a socket would get."""
    return b"" if found is None else disk.pread(found.file.number, found.size, found.position)


def fetch_all(
    log: PartitionLog, offset: int | None = None, isolation: Isolation = Isolation.LOG_END, *, max_bytes: int = 1 << 20
) -> list[Record]:
    """All data records that a reader gets from an offset on, fetch by fetch."""
    at = log.log_start_offset if offset is None else offset
    first, found = at, []
    while at < log.log_end_offset:
        data = content(log.environment.disk, read(log, at, max_bytes, isolation).records)
        if not data:
            break
        before = at
        for pos, header in read_batches(data, partial_tail=True):
            assert header.last_offset >= at, "a batch that the reader has had"
            at = header.next_offset
            if not header.is_control:
                found += [record for record in read_records(data, pos, header) if record.offset >= first]
        assert at > before, "a fetch that does not get on"
    return found


class Stored(NamedTuple):
    """A batch as it is in a segment's file."""

    segment: Segment
    position: int
    header: BatchHeader
    data: bytes


def stored(log: PartitionLog) -> Iterator[Stored]:
    """Every batch in every segment, verified."""
    for segment in log.segments:
        for position, header, block, at in segment.batches():
            yield Stored(segment, position, header, bytes(block[at : at + header.size_bytes]))


def all_records(log: PartitionLog) -> list[tuple[Record, BatchHeader]]:
    """Every record in the files with its batch, markers too."""
    return [(record, header) for _, _, header, data in stored(log) for record in read_records(data, 0, header)]


def first_location(searches: Iterable[Search]) -> Location | None:
    """What ListOffsets answers: the result of the first search that has one."""
    for search in searches:
        search.walk()
        if search.location is not None:
            return search.location
    return None


def aborted_of(log: PartitionLog) -> list[Aborted]:
    return [entry for segment in log.segments for entry in segment.aborted.read()]


def aborted_by_brute_force(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Producer, first and last offset of the aborted transactions, from the batches alone."""
    opened: dict[int, int] = {}
    found = []
    for _, _, header, data in stored(log):
        if header.is_control:
            for record in read_records(data, 0, header):
                first = opened.pop(header.producer_id, None)
                if first is not None and control_type(record) is ControlType.ABORT:
                    found.append((header.producer_id, first, record.offset))
        elif header.is_transactional and header.last_offset >= log.log_start_offset:
            opened.setdefault(header.producer_id, header.base_offset)
    return found


def producers_of(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """What the log knows of each producer, as far as a snapshot keeps it."""
    return {producer.producer_id: tuple(producer.saved()) for producer in log.producers}


def check_epochs(log: PartitionLog, compacted_to: int = 0) -> None:
    """Each batch was written in the epoch that the log knows for it; each epoch but the first begins with a batch,
    unless compaction took that."""
    entries = log.epochs.entries
    headers = [header for _, _, header, _ in stored(log)]
    assert all(log.log_start_offset <= entry.start_offset <= log.log_end_offset for entry in entries)
    # After a crash the log may begin before the start that the epochs know of.
    known = entries[0].start_offset if entries else log.log_end_offset
    for header in headers:
        if header.base_offset >= known:
            assert log.epochs.epoch_for_offset(header.base_offset) == header.leader_epoch
    bases = {header.base_offset for header in headers}
    assert all(entry.start_offset in bases for entry in entries[1:] if entry.start_offset >= compacted_to)


def check_consistent(log: PartitionLog, compacted_to: int = 0) -> None:
    """All that holds for a log at any time, looked at without its indexes."""
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
            assert header.leader_epoch >= epoch, "epochs fall"
            expected, epoch = header.next_offset, header.leader_epoch
        check_indexes(segment)
    assert expected == log.log_end_offset
    check_epochs(log, compacted_to)
    check_aborted(log)


def check_indexes(segment: Segment) -> None:
    """Offsets point to their batches; no batch up to a time entry's offset is later than it says."""
    found = {position: header for position, header, _, _ in segment.batches()}
    for offset, position in segment.offsets.entries():
        assert found[position].last_offset == segment.base_offset + offset
    for timestamp, offset in segment.times.entries():
        times = [h.max_timestamp for h in found.values() if h.last_offset <= segment.base_offset + offset]
        assert max(times) == timestamp
    assert segment.max_timestamp == max((header.max_timestamp for header in found.values()), default=-1)
    positions = [entry[1] for entry in segment.offsets.entries()]
    assert positions == sorted(set(positions))


def check_aborted(log: PartitionLog) -> None:
    """The indexes of aborted transactions say what the batches say, unless a part of those has been removed."""
    entries = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted_of(log)]
    expected = aborted_by_brute_force(log)
    for producer_id, first, last in expected:
        same_end = [entry for entry in entries if entry[0] == producer_id and entry[2] == last]
        assert same_end, f"an aborted transaction is missing: {(producer_id, first, last)}"
        assert same_end[0][1] <= first
