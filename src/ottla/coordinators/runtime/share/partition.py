"""One share partition at its leader, at work: loading its state, writing its changes, ending locks.

Changes are written one write at a time, in order; what comes meanwhile goes with the next one. A share partition whose
state was taken over by another leader, or began anew, is fenced: whoever comes next loads it again.
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
"""Called once: with what went wrong, if anything did."""
FENCING = (NotLeader, FencedStateEpoch, GroupIdNotFound, UnknownTopicOrPartition)
"""After these a share partition must be loaded anew."""


class _Write(NamedTuple):
    batches: Sequence[StateBatch]
    done: Done


class Surroundings(NamedTuple):
    """What share partitions need of their broker."""

    states: ShareStateClient
    runtime: Runtime
    limits: Callable[[str], ShareLimits]
    """The settings in force for a group."""
    first_offset: Callable[[str, Partition], Any]
    """A coroutine that finds where a group begins to read a partition that it has not read yet."""


class LedSharePartition:
    """A share partition of which this broker leads the partition."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        around: Surroundings,
        on_fenced: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.watches: dict[ShareWatch, None] = {}
        """The sessions that read here: their fetches wait for records to become available again."""
        self.share: SharePartition | None = None
        """None while it is being loaded, and after it was fenced."""
        self.failure: ApiError | None = None
        """Why it could not be loaded."""
        self._around = around
        self._on_fenced = on_fenced
        self._state_epoch = 0
        self.is_fenced = False
        """Whether it is of no use any more: the next fetch loads the share partition again."""
        self._writes: list[_Write] = []
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __repr__(self) -> str:
        return f"LedSharePartition({self.key.group_id}, {self.partition.topic}-{self.partition.index})"

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition ever since: in between another may have told members more."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def limits(self) -> ShareLimits:
        return self._around.limits(self.key.group_id)

    def fence(self) -> None:
        """Have nothing to do with it any more."""
        self.is_fenced = True
        self.share = None
        if self._timer is not None:
            self._timer.cancel()
        writes, self._writes = self._writes, []
        for write in writes:
            write.done(NotLeader(f"{self} is led elsewhere, or was begun anew"))
        self._wake()

    # -- loading --

    async def load(self) -> None:
        """Get the state from the share coordinator; where it says no start, one is found."""
        asked = reading.PartitionData(partition=self.key.partition, leader_epoch=self.leader_epoch)
        (found,) = await self._around.states.ask_all(READ, [(self.key, asked)])
        try:
            if isinstance(found, ApiError):
                raise _told(found)
            start = found.start_offset
            if start == NO_START:
                start = await self._around.first_offset(self.key.group_id, self.partition)
            batches = [
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in found.state_batches
            ]
            share = SharePartition(start, batches)
        except (ApiError, ValueError, OSError) as error:
            logger.warning("%s could not be loaded: %s", self, error)
            self.failure = error if isinstance(error, ApiError) else UnknownServerError(str(error))
            self._on_fenced(self)
        else:
            if not self.is_fenced:
                self.share, self._state_epoch = share, found.state_epoch
        self._wake()
        self._around.runtime.completions.run()

    # -- what members do --

    def acknowledge(self, member: str, acks: Iterable[AcknowledgementBatch], done: Done) -> None:
        """Take what became of records; `done` is called when it is written."""
        share = self.share
        if share is None:
            done(UnknownTopicOrPartition("This server does not host this topic-partition."))
            return
        try:
            changes = acknowledge(share, member, acks, self.limits, self._around.runtime.now_ms())
        except ApiError as error:
            done(error)
            return
        self._settle_when_written(share, changes, done)

    def release(self, member: str) -> None:
        """Take back all that a member has."""
        if self.share is not None:
            self._settle_when_written(self.share, self.share.release(member, self.limits), lambda _: None)

    def watch(self, until_ms: int) -> None:
        """Look at a time whether locks have ended, unless that is done before."""
        if self._timer is not None:
            if until_ms >= self._timer_ms:
                return
            self._timer.cancel()
        self._timer_ms = until_ms
        delay_ms = max(until_ms - self._around.runtime.now_ms(), 0)
        self._timer = self._around.runtime.loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.share is None:
            return
        batches = self.share.expire(self._around.runtime.now_ms(), self.limits)
        if batches:
            self._write(batches, self._after_expiry)
            self._wake()
        self._watch_next()
        self._around.runtime.completions.run()

    def _watch_next(self) -> None:
        next_ms = None if self.share is None else self.share.next_deadline_ms()
        if next_ms is not None:
            self.watch(next_ms)

    def _after_expiry(self, error: ApiError | None) -> None:
        """It counts, written or not: whoever leads next knows less of how often a record was delivered, that is all."""
        if error is not None:
            logger.warning("%s could not write that locks ended: %s", self, error)
        if self.share is not None:
            self.share.advance()
            self._wake()

    # -- writing --

    def _settle_when_written(self, share: SharePartition, changes: Sequence[StateChange], done: Done) -> None:
        if not changes:
            done(None)
            return

        def settle(error: ApiError | None) -> None:
            share.settle(changes, self._around.runtime.now_ms(), written=error is None)
            self._wake()
            if error is not None:
                self._watch_next()
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
            error = _told(result) if isinstance(result, ApiError) else None
            for write in writes:
                write.done(error)
            if isinstance(error, FENCING):
                self._on_fenced(self)
            self._write_next()

        self._around.states.ask(WRITE, self.key, data, written)

    def wake_others(self, reader: ShareReader) -> None:
        """Have all sessions but one look again, which has taken what it could."""
        for watch in self.watches:
            if watch.watch_set is not reader:
                watch.wake(self._around.runtime.completions)

    def _wake(self) -> None:
        for watch in self.watches:
            watch.wake(self._around.runtime.completions)


def _told(error: ApiError) -> ApiError:
    """An error of the share coordinator's in the words that a member understands."""
    if isinstance(error, NotCoordinator | CoordinatorNotAvailable | CoordinatorLoading):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, FencedLeaderEpoch | FencedStateEpoch):
        return NotLeader(error.message)
    if isinstance(error, GroupIdNotFound | UnknownTopicOrPartition):
        return error
    return UnknownServerError(error.message)
