"""A share partition at its leader: loading its state, writing its changes, and expiring acquisition locks.

Changes are written in order, one write at a time; changes during a write go into the next one. A share partition is
fenced when another leader took over its state or the state was initialized again. The next fetch loads it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.coordinators.runtime.share.reader import ShareReader, ShareWatch
from ottla.coordinators.runtime.share.states import READ, WRITE, ShareStateClient
from ottla.coordinators.share.acknowledging import AcknowledgementBatch, acknowledge
from ottla.coordinators.share.batches import StateBatch
from ottla.coordinators.share.partition import ShareLimits, SharePartition, StateChange
from ottla.coordinators.share.state import NO_START, SharePartitionKey
from ottla.protocol.errors import (
    ApiError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    NotCoordinator,
    NotLeader,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.rpc import read_share_group_state as reading
from ottla.protocol.messages.rpc import write_share_group_state as writing
from ottla.replication.partition import Partition
from ottla.replication.runtime import Runtime

logger = logging.getLogger(__name__)

Done = Callable[[ApiError | None], None]
"""Called once, with an error or None."""
FENCING = (NotLeader, FencedStateEpoch, GroupIdNotFound, UnknownTopicOrPartition)
"""After these errors a share partition must be loaded again."""


class _Write(NamedTuple):
    batches: Sequence[StateBatch]
    done: Done


class Dependencies(NamedTuple):
    """The parts of the broker that share partitions use."""

    states: ShareStateClient
    runtime: Runtime
    limits: Callable[[str], ShareLimits]
    """Returns the limits of a group."""
    first_offset: Callable[[str, Partition], Any]
    """A coroutine function that finds where a group begins to read a new partition."""


class LedSharePartition:
    """A share partition whose partition this broker leads."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        dependencies: Dependencies,
        on_fenced: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.watches: dict[ShareWatch, None] = {}
        """The watches of the sessions that read it, to be woken when records become available."""
        self.share: SharePartition | None = None
        """None while it is loading, and after it was fenced."""
        self.failure: ApiError | None = None
        """The error of a failed load."""
        self._dependencies = dependencies
        self._on_fenced = on_fenced
        self._state_epoch = 0
        self.is_fenced = False
        """Whether it was fenced, so that the next fetch loads it again."""
        self._writes: list[_Write] = []
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __repr__(self) -> str:
        return f"LedSharePartition({self.key.group_id}, {self.partition.topic}-{self.partition.index})"

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition without interruption since the load."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def limits(self) -> ShareLimits:
        return self._dependencies.limits(self.key.group_id)

    def fence(self) -> None:
        """Stop using it, and fail the pending writes."""
        self.is_fenced = True
        self.share = None
        if self._timer is not None:
            self._timer.cancel()
        writes, self._writes = self._writes, []
        for write in writes:
            write.done(NotLeader(f"{self} moved to another broker or was initialized again"))
        self._wake()

    # -- loading --

    async def load(self) -> None:
        """Load the state from the share coordinator, and determine the start offset if it has none."""
        data = reading.PartitionData(partition=self.key.partition, leader_epoch=self.leader_epoch)
        (result,) = await self._dependencies.states.ask_all(READ, [(self.key, data)])
        try:
            if isinstance(result, ApiError):
                raise _member_error(result)
            start = result.start_offset
            if start == NO_START:
                start = await self._dependencies.first_offset(self.key.group_id, self.partition)
            batches = [
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in result.state_batches
            ]
            share = SharePartition(start, batches)
        except (ApiError, ValueError, OSError) as error:
            logger.warning("cannot load %s: %s; the next fetch retries", self, error)
            self.failure = error if isinstance(error, ApiError) else UnknownServerError(str(error))
            self._on_fenced(self)
        else:
            if not self.is_fenced:
                self.share, self._state_epoch = share, result.state_epoch
        self._wake()
        self._dependencies.runtime.completions.run()

    # -- requests of members --

    def acknowledge(self, member: str, acks: Iterable[AcknowledgementBatch], done: Done) -> None:
        """Acknowledge records; `done` is called when the changes are written."""
        share = self.share
        if share is None:
            done(UnknownTopicOrPartition("This server does not host this topic-partition."))
            return
        try:
            changes = acknowledge(share, member, acks, self.limits, self._dependencies.runtime.now_ms())
        except ApiError as error:
            done(error)
            return
        self._settle_when_written(share, changes, done)

    def release(self, member: str) -> None:
        """Release all records that a member has acquired."""
        if self.share is not None:
            self._settle_when_written(self.share, self.share.release(member, self.limits), lambda _: None)

    def schedule_expiry(self, until_ms: int) -> None:
        """Check for expired locks at a time, unless an earlier check is scheduled."""
        if self._timer is not None:
            if until_ms >= self._timer_ms:
                return
            self._timer.cancel()
        self._timer_ms = until_ms
        delay_ms = max(until_ms - self._dependencies.runtime.now_ms(), 0)
        self._timer = self._dependencies.runtime.loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.share is None:
            return
        batches = self.share.expire(self._dependencies.runtime.now_ms(), self.limits)
        if batches:
            self._write(batches, self._after_expiry)
            self._wake()
        self._schedule_next_expiry()
        self._dependencies.runtime.completions.run()

    def _schedule_next_expiry(self) -> None:
        next_ms = None if self.share is None else self.share.next_deadline_ms()
        if next_ms is not None:
            self.schedule_expiry(next_ms)

    def _after_expiry(self, error: ApiError | None) -> None:
        """Finish an expiry. If it was not written, only the delivery counts of the next leader are lower."""
        if error is not None:
            logger.warning(
                "cannot write expired acquisition locks of %s: %s; delivery counts may restart lower", self, error
            )
        if self.share is not None:
            self.share.advance()
            self._wake()

    # -- writing --

    def _settle_when_written(self, share: SharePartition, changes: Sequence[StateChange], done: Done) -> None:
        if not changes:
            done(None)
            return

        def settle(error: ApiError | None) -> None:
            share.settle(changes, self._dependencies.runtime.now_ms(), written=error is None)
            self._wake()
            if error is not None:
                self._schedule_next_expiry()
            done(error)

        self._write([change.batch for change in changes], settle)

    def _write(self, batches: Sequence[StateBatch], done: Done) -> None:
        self._writes.append(_Write(batches, done))
        if not self._is_writing:
            self._write_next()

    def _write_next(self) -> None:
        share = self.share
        if not self._writes or share is None:
            return
        writes, self._writes = self._writes, []
        self._is_writing = True
        data = writing.PartitionData(
            partition=self.key.partition,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=share.start,
            delivery_complete_count=share.complete_count,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for write in writes
                for first, last, state, count in write.batches
            ],
        )

        def written(result: Any) -> None:
            self._is_writing = False
            error = _member_error(result) if isinstance(result, ApiError) else None
            for write in writes:
                write.done(error)
            if isinstance(error, FENCING):
                self._on_fenced(self)
            self._write_next()

        self._dependencies.states.ask(WRITE, self.key, data, written)

    def wake_others(self, reader: ShareReader) -> None:
        """Wake the fetches of all sessions except one."""
        for watch in self.watches:
            if watch.watch_set is not reader:
                watch.wake(self._dependencies.runtime.completions)

    def _wake(self) -> None:
        for watch in self.watches:
            watch.wake(self._dependencies.runtime.completions)


def _member_error(error: ApiError) -> ApiError:
    """Return the error for a member, for an error of the share coordinator."""
    if isinstance(error, NotCoordinator | CoordinatorNotAvailable | CoordinatorLoading):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, FencedLeaderEpoch | FencedStateEpoch):
        return NotLeader(error.message)
    if isinstance(error, GroupIdNotFound | UnknownTopicOrPartition):
        return error
    return UnknownServerError(error.message)
