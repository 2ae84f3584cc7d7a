"""One partition of a coordinator's topic while this broker leads it: see the package for how it works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, Generic, TypeVar

from ottla.coordinators.runtime.behaviour import Behaviour
from ottla.coordinators.runtime.deadlines import Deadlines
from ottla.metadata.image.changes import Changes
from ottla.protocol.errors import (
    ApiError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    RecordListTooLarge,
    StorageFailed,
    UnknownServerError,
)
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.errors import ProtocolError
from ottla.replication.awaited_ticket import AwaitedTicket
from ottla.replication.partition import Partition
from ottla.replication.purgatory import Operation
from ottla.replication.runtime import Runtime
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.producers import Origin
from ottla.storage.log.reading import read
from ottla.storage.log.scan import CorruptLog
from ottla.storage.state_machine.decision import PARKED, Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Marker, Stored, batch_of, entries_of
from ottla.storage.state_machine.histogram import record
from ottla.storage.state_machine.machine import Machine
from ottla.storage.state_machine.times import EventTimes

logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")

_SLICE_BYTES: Final = 128 * 1024
"""The amount read at once while loading, between which other work runs."""
_LATE_CHECK_S: Final = 1.0
_RETRY_MS: Final = 500


class Shard(Generic[S]):
    """The coordinator on one partition, for one leader epoch."""

    def __init__(
        self,
        behaviour: Behaviour[S],
        partition: Partition,
        runtime: Runtime,
        *,
        write_timeout_ms: int,
        compression: Compression = Compression.NONE,
        times: EventTimes | None = None,
    ) -> None:
        self._behaviour = behaviour
        self.partition = partition
        self.epoch = partition.leader_epoch
        self._loop = runtime.loop
        self._completions = runtime.completions
        self._now_ms = now_ms = runtime.now_ms
        self._write_timeout_ms = write_timeout_ms
        self._compression = compression
        self._deadlines = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._late_check: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._watch: _HighWatermarkWatch | None = None
        self._failure: ApiError = CoordinatorLoading("the coordinator is loading its state")
        self.machine: Machine[S] = Machine(
            append=self._append,
            apply=lambda state, entries, last: behaviour.replay(state, entries, now_ms(), last - len(entries) + 1),
            now_ms=now_ms,
            clock_ns=perf_counter_ns,
            set_timers=self._set_timers,
            times=times,
        )

    def __repr__(self) -> str:
        return f"Shard({self.partition.topic}-{self.partition.index}, epoch {self.epoch})"

    @property
    def is_active(self) -> bool:
        return self.machine.is_active

    @property
    def phase(self) -> str:
        """The shard's state in Kafka's metrics: "loading", "active" or "failed"."""
        if self.machine.is_active:
            return "active"
        return "loading" if self._loading is not None and not self._loading.done() else "failed"

    @property
    def state(self) -> S:
        """The state with everything appended; raises the reason if the shard is not active."""
        if not self.machine.is_active:
            raise self._failure
        return self.machine.state

    def load(self) -> None:
        """Begin to load. `is_active` turns true when it is done."""
        self._loading = self._loop.create_task(self._load())

    def close(self, error: ApiError | None = None) -> None:
        """Stop deciding, and fail all waiting requests."""
        self._failure = error or NotCoordinator(f"{self} moved to another broker")
        if self._loading is not None:
            self._loading.cancel()
        for timer in (self._timer, self._late_check):
            if timer is not None:
                timer.cancel()
        if self._watch is not None:
            self._watch.finish()
        if self.machine.is_active:
            parked = list(self._behaviour.parked_tickets(self.machine.state))
            self.machine.deactivate(self._failure)
            for ticket in parked:
                ticket.fail(self._failure)

    def submit(self, name: str, decide: Callable[[S], Decision[Any]], ticket: Ticket) -> None:
        """Decide on a request and answer its ticket, unless the decision parks it. Raise if the shard is not active."""
        if not self.machine.is_active:
            raise self._failure

        def reply(result: Any) -> None:
            if isinstance(result, ApiError):
                ticket.fail(result)
            elif result is not PARKED:
                ticket.answer(result)

        self.machine.submit(name, decide, reply)

    async def ask(self, name: str, decide: Callable[[S], Decision[R]]) -> R:
        """Return the reply of a decision once it is committed; raise its error."""
        ticket = AwaitedTicket(self._loop.create_future())
        self.submit(name, decide, ticket)
        self._completions.run()
        result: R = await ticket.future
        return result

    def publish(self, changes: Changes) -> None:
        """Apply a change of the cluster's metadata."""
        if self.machine.is_active:
            decision = self._behaviour.on_metadata_changed(self.machine.state, changes)
            if decision is not None:
                self.machine.submit("Metadata", lambda _: decision, self._log_failure)

    # -- loading --

    async def _load(self) -> None:
        start_ns = perf_counter_ns()
        try:
            state, end = await self._read_all()
        except (OSError, CorruptLog, ProtocolError, ApiError) as error:
            logger.error(
                "cannot load %s: %s; its clients get NOT_COORDINATOR until another broker leads it", self, error
            )
            self._failure = NotCoordinator(f"{self} failed to load")
            return
        took_ns = perf_counter_ns() - start_ns
        record(self.machine.times.load, took_ns)
        logger.info("loaded %s up to offset %d in %.0f ms", self, end, took_ns / 1e6)
        self._watch = _HighWatermarkWatch(self._committed)
        self.partition.waiting_produces.add(self._watch)
        self.machine.activate(state, end - 1)
        self._committed()
        self.machine.submit(
            "Loaded", lambda state: self._behaviour.on_loaded(state, self._now_ms()), self._log_failure, first=True
        )
        self._completions.run()

    async def _read_all(self) -> tuple[S, int]:
        """Replay the whole log. This leader will commit the records after the high watermark."""
        behaviour, log = self._behaviour, self.partition.log
        state, offset = behaviour.empty_state(), log.log_start_offset
        while True:
            chunk = read(log, offset, _SLICE_BYTES, Isolation.LOG_END).records
            if chunk is None:
                return state, log.log_end_offset
            data = log.environment.disk.pread(chunk.file.number, chunk.size, chunk.position)
            for pos, header in read_batches(data, partial_tail=True):
                if header.last_offset >= offset:
                    entries = entries_of(behaviour.kinds, data, pos, header)
                    state = behaviour.replay(state, entries, self._now_ms(), header.base_offset)
                    offset = header.last_offset + 1
            await asyncio.sleep(0)

    # -- writing --

    def _append(self, entries: Sequence[Entry], atomic: bool) -> int:
        partition, now_ms, times = self.partition, self._now_ms(), self.machine.times
        if partition.leader_epoch != self.epoch:
            raise NotCoordinator(f"the leader epoch of {self} is {partition.leader_epoch} now")
        try:
            first = entries[0]
            if isinstance(first, Marker):
                assert len(entries) == 1, "a marker is the only entry of its decision"
                begun_ns = perf_counter_ns()
                offset = partition.append_marker(first, now_ms).last_offset
            else:
                stored = [entry for entry in entries if not isinstance(entry, Marker)]
                assert len(stored) == len(entries), "a marker is the only entry of its decision"
                ready = self._batches(stored, atomic, now_ms)
                begun_ns = perf_counter_ns()
                for batch in ready:
                    appended = partition.append(batch, acks=-1, now_ms=now_ms, origin=Origin.COORDINATOR)
                    offset = appended.last_offset
        except ApiError as error:
            raise _client_error(error) from error
        except OSError as error:
            raise NotCoordinator(f"cannot write {self}: {error}") from error
        record(times.linger, max(begun_ns - self.machine.decided_ns, 0))
        record(times.flush, perf_counter_ns() - begun_ns)
        if partition.log.high_watermark > offset:
            self._committed()  # the leader is the only in-sync replica: reply without a wake-up
        elif self._late_check is None:
            self._late_check = self._loop.call_later(_LATE_CHECK_S, self._check_late)
        return offset

    def _batches(self, entries: Sequence[Stored], atomic: bool, now_ms: int) -> list[bytearray]:
        """Build one batch, or several if the records need not be atomic and are too large for one."""
        batch = batch_of(entries, timestamp=now_ms, compression=self._compression)
        if atomic or len(entries) == 1 or len(batch) <= self.partition.log.settings.max_message_bytes:
            return [batch]
        half = len(entries) // 2
        return [*self._batches(entries[:half], atomic, now_ms), *self._batches(entries[half:], atomic, now_ms)]

    def _committed(self) -> None:
        self.machine.committed(self.partition.log.high_watermark - 1)

    def _check_late(self) -> None:
        """Fail the replies that have waited too long for the replicas."""
        self._late_check = None
        self.machine.give_up(
            self._now_ms() - self._write_timeout_ms,
            CoordinatorNotAvailable(f"the in-sync replicas of {self} did not replicate the decision in time"),
        )
        if self.machine.oldest_waiting_ms() is not None:
            self._late_check = self._loop.call_later(_LATE_CHECK_S, self._check_late)
        self._completions.run()

    # -- timers --

    def _set_timers(self, timers: Sequence[tuple[Hashable, int | None]]) -> None:
        """Set timers. Their times are in wall-clock time but are converted to the loop's monotonic clock: setting the
        machine's clock must not end sessions.
        """
        ahead_ms = self._loop_ms() - self._now_ms()
        for key, at_ms in timers:
            self._deadlines.set(key, None if at_ms is None else at_ms + ahead_ms)
        self._schedule()

    def _loop_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _schedule(self) -> None:
        next_ms = self._deadlines.next_ms()
        if self._timer is not None:
            if next_ms is not None and next_ms >= self._timer_ms:
                return  # the current timer fires in time, and then schedules the next one
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            self._timer_ms = next_ms
            self._timer = self._loop.call_later(max(next_ms - self._loop_ms(), 0) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self.machine.is_active:
            return
        for key in self._deadlines.due(self._loop_ms()):
            self.machine.submit("Expired", self._on_expired(key), partial(self._after_expiry, key))
        self._schedule()
        self._completions.run()

    def _on_expired(self, key: Hashable) -> Callable[[S], Decision[Any]]:
        return lambda state: self._behaviour.on_timer(state, key, self._now_ms())

    def _after_expiry(self, key: Hashable, result: Any) -> None:
        """Retry an expiry that could not be written, unless its timer was set again."""
        self._log_failure(result)
        if isinstance(result, ApiError) and self.machine.is_active and key not in self._deadlines:
            self._deadlines.set(key, self._loop_ms() + _RETRY_MS)
            self._schedule()

    def _log_failure(self, result: Any) -> None:
        if isinstance(result, ApiError) and not isinstance(result, NotCoordinator):
            logger.warning("background work of %s failed: %s", self, result)


class _HighWatermarkWatch(Operation):
    """An operation that never completes in the partition's purgatory, to be notified of each high watermark."""

    __slots__ = ("_notice",)

    def __init__(self, notice: Callable[[], None]) -> None:
        super().__init__()
        self._notice = notice

    def try_complete(self) -> bool:
        self._notice()
        return False

    def expire(self) -> None:
        """It has no deadline."""


def _client_error(error: ApiError) -> ApiError:
    """Return the error for a client whose request could not be written."""
    if isinstance(error, NotLeader | StorageFailed):
        return NotCoordinator(error.message)
    if isinstance(error, NotEnoughReplicas):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        logger.error("the records of a coordinator exceed its topic's max.message.bytes: %s", error)
        return UnknownServerError(error.message)
    return error
