"""A share fetch at work: it reads what its share partitions can give, or waits until they can give enough.

It waits as any fetch does: in the lists of the partitions for the high watermark, in those of the share partitions for
records that become available again, and in the one timer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.coordination.share_partition import FENCING, LedSharePartition
from ottla.errors import ApiError, NotLeader, OffsetOutOfRange, StorageFailed
from ottla.log.partition_log import Isolation, PartitionLog
from ottla.log.reading import Fetched, available_bytes
from ottla.replica.partition import Diverging
from ottla.replica.waiting import Operation
from ottla.share.aborted import aborted_spans, without_spans
from ottla.share.acquiring import Acquired, Asked, Span, acquire
from ottla.share.delivery import State
from ottla.share.partition import SharePartition
from ottla.share.sessions import Where
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.varint import Buffer

_NOTHING = b""


class Part(NamedTuple):
    """What a fetch brought of one share partition."""

    records: Buffer = _NOTHING
    acquired: Sequence[Acquired] = ()
    error: ApiError | None = None


class _Read(NamedTuple):
    """Batches of a log."""

    data: Buffer
    headers: Sequence[tuple[int, BatchHeader]]
    aborted: Sequence[Span]


class ShareFetch(Operation):
    """One share fetch. `done` is called once with what it brought; a share partition may be left out."""

    __slots__ = (
        "_asked",
        "_done",
        "_failed",
        "_fence",
        "_is_wanted",
        "_isolation",
        "_leds",
        "_max_bytes",
        "_min_bytes",
        "_now_ms",
    )

    def __init__(
        self,
        leds: dict[Where, LedSharePartition],
        failed: dict[Where, ApiError],
        asked: Asked,
        *,
        min_bytes: int,
        max_bytes: int,
        isolation: Isolation,
        now_ms: Callable[[], int],
        is_wanted: Callable[[], bool],
        fence: Callable[[LedSharePartition], None],
        done: Callable[[dict[Where, Part]], None],
    ) -> None:
        super().__init__()
        self._leds = leds
        self._failed = failed
        self._asked = asked
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._now_ms = now_ms
        self._is_wanted = is_wanted
        """Whether the member is still there: nobody would take what is acquired for one that is gone."""
        self._fence = fence
        self._done = done

    def try_complete(self) -> bool:
        """Whether there was enough to be had, or something is wrong."""
        able = self._able()
        if not able or not self._is_enough(able):
            return False
        self._complete(able)
        return True

    def expire(self) -> None:
        self._complete(self._able())

    def _able(self) -> dict[Where, int]:
        """The share partitions that could give something, with the offsets to read from."""
        able = {}
        for where, led in self._leds.items():
            if led.failure is not None:
                self._failed.setdefault(where, led.failure)
            elif not led.is_current:
                self._failed.setdefault(where, NotLeader(f"{led.partition} is not the leader"))
            elif led.share is not None and led.share.can_acquire(led.limits):
                able[where] = led.share.next_offset()
        return able

    def _is_enough(self, able: dict[Where, int]) -> bool:
        total, room = 0, self._max_bytes // len(able)
        for where, offset in able.items():
            log = self._leds[where].partition.log
            limit = log.limit(self._isolation)
            if offset > limit or offset < log.log_start_offset:
                return True  # the log is not what it was: reading tells
            if offset < limit:
                total += min(available_bytes(log, offset, self._isolation, enough=self._min_bytes), max(room, 1))
        return total >= self._min_bytes

    def _complete(self, able: dict[Where, int]) -> None:
        if not self._is_wanted():
            self._done({})
            return
        parts: dict[Where, Part] = {}
        left, room, records = self._max_bytes, max(self._max_bytes // len(able), 1) if able else 0, 0
        asked = self._asked
        for where, offset in able.items():
            led = self._leds[where]
            part = self._fetch(
                led,
                offset,
                min(room, left),
                asked._replace(max_records=asked.max_records - records),
                whole_first=left == self._max_bytes,
            )
            parts[where] = part
            left = max(left - len(part.records), 0)
            records += sum(last - first + 1 for first, last, _ in part.acquired)
        for where, error in self._failed.items():
            parts[where] = Part(error=error)
        self._done(parts)
        for where in able:
            self._leds[where].partition.completions.add(self._leds[where].waiting)

    def _fetch(self, led: LedSharePartition, offset: int, room: int, asked: Asked, *, whole_first: bool) -> Part:
        share = led.share
        assert share is not None
        try:
            found = led.partition.read(offset, room, self._isolation, whole_first=whole_first)
            assert not isinstance(found, Diverging)
            read = self._read(led.partition.log, found)
        except OffsetOutOfRange:
            share.move_start(led.partition.log.log_start_offset)
            return Part()
        except ApiError as error:
            if isinstance(error, FENCING):
                self._fence(led)
            return Part(error=error)
        except OSError as error:
            return Part(error=StorageFailed(str(error)))
        limits, now_ms = led.limits, self._now_ms()
        spans = [Span(header.base_offset, header.last_offset) for _, header in read.headers]
        acquired = acquire(share, asked, offset, spans, limits, now_ms)
        if acquired:
            led.watch(now_ms + limits.lock_ms)
        acquired = _committed(share, acquired, read.aborted)
        if not acquired:
            return Part()
        return Part(_sliced(read, acquired[0].first, acquired[-1].last), acquired)

    def _read(self, log: PartitionLog, found: Fetched) -> _Read:
        if found.records is None:
            return _Read(_NOTHING, (), ())
        file = found.records
        data = log.home.disk.pread(file.file.number, file.size, file.position)
        headers = list(batches(data, partial_tail=True))
        return _Read(data, headers, aborted_spans(data, headers, found.aborted or ()))


def _committed(share: SharePartition, acquired: list[Acquired], aborted: Sequence[Span]) -> list[Acquired]:
    """Without records of transactions that were aborted: those are done with."""
    if not aborted or not acquired:
        return acquired
    for span in aborted:
        share.archive(span.base, span.last, State.ACQUIRED)
    left = without_spans(acquired, aborted)
    if not left:
        share.advance()  # nobody will acknowledge anything that would
    return left


def _sliced(read: _Read, first: int, last: int) -> Buffer:
    """The bytes of the batches that hold acquired records."""
    begin = end = 0
    for position, header in read.headers:
        if header.base_offset <= first:
            begin = position
        if header.base_offset <= last:
            end = position + header.size_bytes
    return memoryview(read.data)[begin:end]
