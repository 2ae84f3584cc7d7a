"""The execution of a share fetch: it reads available records, or waits until there are enough.

Partitions notify the session's reader of a higher high watermark, and share partitions of records that become available
again. The timer bounds the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from ottla.coordinators.runtime.share.partition import FENCING, LedSharePartition
from ottla.coordinators.runtime.share.reader import ShareReader, ShareWatch
from ottla.coordinators.share.aborted import aborted_ranges, without_ranges
from ottla.coordinators.share.acquiring import AcquiredRecords, AcquireRequest, BatchRange, acquire
from ottla.coordinators.share.delivery import RecordState
from ottla.coordinators.share.partition import ShareLimits, SharePartition
from ottla.coordinators.share.sessions import TopicIdPartition
from ottla.protocol.errors import ApiError, NotLeader, OffsetOutOfRange, StorageFailed
from ottla.protocol.wire.batch import BatchHeader, read_batches
from ottla.protocol.wire.varint import Buffer
from ottla.replication.partition import Diverging
from ottla.replication.purgatory import Operation
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import Fetched, available_bytes

_NOTHING = b""


class FetchedPartition(NamedTuple):
    """The records or the error of one share partition in a fetch."""

    records: Buffer = _NOTHING
    acquired: Sequence[AcquiredRecords] = ()
    error: ApiError | None = None


class _Read(NamedTuple):
    """Batches read from a log."""

    data: Buffer
    headers: Sequence[tuple[int, BatchHeader]]
    aborted: Sequence[BatchRange]


class ShareFetch(Operation):
    """One share fetch. `done` is called once with the results, which may lack share partitions."""

    kind = "ShareFetch"

    __slots__ = (
        "_asked",
        "_done",
        "_failed",
        "_fence",
        "_is_wanted",
        "_isolation",
        "_limits",
        "_log_changed",
        "_max_bytes",
        "_min_bytes",
        "_now_ms",
        "_reader",
        "_refused",
        "_total",
    )

    def __init__(
        self,
        reader: ShareReader,
        request: AcquireRequest,
        *,
        refused: Collection[TopicIdPartition],
        failed: dict[TopicIdPartition, ApiError],
        min_bytes: int,
        max_bytes: int,
        isolation: Isolation,
        limits: Callable[[], ShareLimits],
        now_ms: Callable[[], int],
        is_wanted: Callable[[], bool],
        fence: Callable[[LedSharePartition], None],
        done: Callable[[dict[TopicIdPartition, FetchedPartition]], None],
    ) -> None:
        super().__init__()
        self._reader = reader
        self._asked = request
        self._refused = refused
        """Partitions that the member may not read or that do not exist."""
        self._failed = failed
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._limits = limits
        self._now_ms = now_ms
        self._is_wanted = is_wanted
        """Whether the session still exists: otherwise no member would get the acquired records."""
        self._fence = fence
        self._done = done
        self._total = 0
        """The bytes available to read at the last check of each share partition."""
        self._log_changed = False
        """Whether a fetch offset is out of a log's range, so that a read must find out."""

    def begin(self) -> bool:
        """Check what changed since the session's last fetch; return whether this fetch completed."""
        watches = self._reader.changed_in_order()
        for watch in watches:
            watch.available_bytes = 0
            self._reader.set_able(watch, is_able=False)
        self._check(watches)
        return self._complete_if_enough()

    def try_complete(self) -> bool:
        """Check the share partitions that changed since the last check; return whether the fetch completed."""
        self._check(self._reader.take_woken())
        return self._complete_if_enough()

    def expire(self) -> None:
        self._check(self._reader.take_woken())
        self._complete()

    def cancel(self) -> None:
        """Complete without acquiring anything, because the member no longer waits."""
        self.finish()
        self._leave()
        self._done({})

    def give_up(self, error: Exception) -> None:
        """Complete without records after an unexpected error; the member fetches again."""
        super().give_up(error)
        self.cancel()

    def _leave(self) -> None:
        if self._reader.waiting is self:
            self._reader.waiting = None
            self._reader.woken.clear()

    def _check(self, watches: Iterable[ShareWatch]) -> None:
        limits = self._limits()
        for watch in watches:
            if watch.led is not None and watch.topic_partition not in self._refused:
                before, watch.available_bytes = watch.available_bytes, self._available_bytes(watch, watch.led, limits)
                self._total += watch.available_bytes - before

    def _available_bytes(self, watch: ShareWatch, led: LedSharePartition, limits: ShareLimits) -> int:
        """Return the bytes available in a share partition, up to its share of the response."""
        if led.failure is not None:
            self._failed.setdefault(watch.topic_partition, led.failure)
        elif not led.is_current:
            self._failed.setdefault(watch.topic_partition, NotLeader(f"{led.partition} is not the leader"))
        elif led.share is not None and led.share.can_acquire(limits):
            self._reader.set_able(watch, is_able=True)
            log, offset = led.partition.log, led.share.next_offset()
            limit = log.limit(self._isolation)
            if offset > limit or offset < log.log_start_offset:
                self._log_changed = True
            elif offset < limit:
                size = available_bytes(log, offset, self._isolation, enough=self._min_bytes)
                return min(size, self._partition_max_bytes)
            return 0
        self._reader.set_able(watch, is_able=False)
        return 0

    @property
    def _partition_max_bytes(self) -> int:
        """The maximum bytes of one share partition in the response."""
        return max(self._max_bytes // max(self._reader.able_count, 1), 1)

    def _complete_if_enough(self) -> bool:
        if not self._reader.able_count or not (self._log_changed or self._total >= self._min_bytes):
            return False
        self.finish()
        self._complete()
        return True

    def _complete(self) -> None:
        self._leave()
        if not self._is_wanted():
            self._done({})
            return
        reader = self._reader
        watches = reader.changed_in_order()
        able = self._rotated(
            [watch for watch in watches if watch.is_able and watch.topic_partition not in self._refused]
        )
        parts: dict[TopicIdPartition, FetchedPartition] = {}
        remaining_bytes, partition_max_bytes, records = self._max_bytes, self._partition_max_bytes, 0
        request = self._asked
        for watch in able:
            assert watch.led is not None, f"{watch.topic_partition} has records but is not led here"
            part = parts[watch.topic_partition] = self._fetch(
                watch.led,
                min(partition_max_bytes, remaining_bytes),
                request._replace(max_records=request.max_records - records),
                whole_first=remaining_bytes == self._max_bytes,
            )
            remaining_bytes = max(remaining_bytes - len(part.records), 0)
            records += sum(last - first + 1 for first, last, _ in part.acquired)
            if part.acquired:
                watch.go_last()
        for topic_partition, error in self._failed.items():
            parts[topic_partition] = FetchedPartition(error=error)
        limits = self._limits()
        reader.keep_changed([watch for watch in watches if not self._is_quiet(watch, limits)])
        self._done(parts)
        for watch in able:
            if watch.led is not None:
                watch.led.wake_others(reader)

    def _rotated(self, watches: list[ShareWatch]) -> list[ShareWatch]:
        """Start at another share partition each time, because the first one gets the most bytes."""
        first = self._reader.session.epoch % len(watches) if watches else 0
        return watches[first:] + watches[:first]

    def _is_quiet(self, watch: ShareWatch, limits: ShareLimits) -> bool:
        """Whether a share partition has nothing to give until it changes."""
        led = watch.led
        if (
            led is None
            or led.is_fenced
            or watch.topic_partition in self._refused
            or watch.topic_partition in self._failed
        ):
            return False
        if led.share is None or not led.share.can_acquire(limits):
            return True
        return led.share.next_offset() == led.partition.log.limit(self._isolation)

    def _fetch(
        self, led: LedSharePartition, max_bytes: int, request: AcquireRequest, *, whole_first: bool
    ) -> FetchedPartition:
        share = led.share
        assert share is not None
        offset = share.next_offset()
        try:
            fetched = led.partition.read(offset, max_bytes, self._isolation, whole_first=whole_first)
            assert not isinstance(fetched, Diverging)
            read = self._read(led.partition.log, fetched)
        except OffsetOutOfRange:
            share.move_start(led.partition.log.log_start_offset)
            return FetchedPartition()
        except ApiError as error:
            if isinstance(error, FENCING):
                self._fence(led)
            return FetchedPartition(error=error)
        except OSError as error:
            return FetchedPartition(error=StorageFailed(str(error)))
        limits, now_ms = self._limits(), self._now_ms()
        batch_ranges = [BatchRange(header.base_offset, header.last_offset) for _, header in read.headers]
        acquired = acquire(share, request, offset, batch_ranges, limits, now_ms)
        if acquired:
            led.schedule_expiry(now_ms + limits.lock_ms)
        acquired = _committed(share, acquired, read.aborted)
        if not acquired:
            return FetchedPartition()
        return FetchedPartition(_sliced(read, acquired[0].first, acquired[-1].last), acquired)

    def _read(self, log: PartitionLog, fetched: Fetched) -> _Read:
        if fetched.records is None:
            return _Read(_NOTHING, (), ())
        file = fetched.records
        data = log.environment.disk.pread(file.file.number, file.size, file.position)
        headers = list(read_batches(data, partial_tail=True))
        return _Read(data, headers, aborted_ranges(data, headers, fetched.aborted or ()))


def _committed(
    share: SharePartition, acquired: list[AcquiredRecords], aborted: Sequence[BatchRange]
) -> list[AcquiredRecords]:
    """Remove records of aborted transactions, which are archived."""
    if not aborted or not acquired:
        return acquired
    for span in aborted:
        share.archive(span.base, span.last, RecordState.ACQUIRED)
    remaining = without_ranges(acquired, aborted)
    if not remaining:
        share.advance()  # no acknowledgement will follow that would do it
    return remaining


def _sliced(read: _Read, first: int, last: int) -> Buffer:
    """Return the bytes of the batches with acquired records."""
    begin = end = 0
    for position, header in read.headers:
        if header.base_offset <= first:
            begin = position
        if header.base_offset <= last:
            end = position + header.size_bytes
    return memoryview(read.data)[begin:end]
