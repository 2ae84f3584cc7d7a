"""Markers for partitions that this broker leads: appended, and answered for when all in-sync replicas have them.

Those for committed offsets go through the group coordinator of their partition, so that what it holds back of the
transaction counts or is dropped in the order of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.transactions.state import TopicPartition
from ottla.protocol.errors import (
    NONE,
    ApiError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    RequestTimedOut,
    StorageFailed,
    UnknownTopicOrPartition,
)
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Operation, complete_or_wait
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Marker

GROUPS_TOPIC: Final = "__consumer_offsets"
Codes = dict[TopicPartition, int]
Done = Callable[[Codes], None]


class MarkerWriter:
    """Writes markers to partitions that are led here."""

    def __init__(
        self,
        partitions: Partitions,
        groups: Shards[GroupsState],
        runtime: Runtime,
        *,
        timeout_ms: int,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._timer = runtime.timer
        self._now_ms = runtime.now_ms
        self._timeout_ms = timeout_ms

    def write(self, marker: Marker, where: Collection[TopicPartition], done: Done) -> None:
        """Write a marker to partitions; `done` gets an error code for each, now or later."""
        writing = _Writing(set(where), done)
        for each in where:
            try:
                self._write(writing, marker, each)
            except ApiError as error:
                writing.settle(each, error.code)
            except OSError:
                writing.settle(each, StorageFailed.code)
        writing.is_begun = True
        complete_or_wait(writing, writing.lists(), self._timer, self._timeout_ms)

    def _write(self, writing: _Writing, marker: Marker, where: TopicPartition) -> None:
        partition = self._partitions.find(where.topic, where.partition)
        if partition is None:
            # Whether there is one elsewhere is for the coordinator to find out.
            raise UnknownTopicOrPartition(f"no replica of {where.topic}-{where.partition} is here")
        if where.topic == GROUPS_TOPIC:
            ticket = _Ticket(writing, where)
            try:
                shard = self._groups.at(where.partition)
                shard.submit("WriteTxnMarkers", lambda _: Decision([marker], None), ticket)
            except ApiError as error:
                ticket.fail(error)
            return
        writing.wait_for(where, partition, append_marker(partition, marker, self._now_ms()))


def append_marker(partition: Partition, marker: Marker, now_ms: int) -> int:
    """Append a marker as the leader; the offset behind it."""
    partition.check_leader()
    settings, in_sync = partition.log.settings, len(partition.assignment.isr)
    if in_sync < settings.min_insync_replicas:
        raise NotEnoughReplicas(f"{partition.topic}-{partition.index} has only {in_sync} replicas in sync")
    return partition.append_marker(marker, now_ms).last_offset + 1


class _Writing(Operation):
    """One marker on its way to several partitions."""

    __slots__ = ("_codes", "_done", "_ends", "_open", "is_begun")

    def __init__(self, where: set[TopicPartition], done: Done) -> None:
        super().__init__()
        self._open = where
        self._ends: dict[TopicPartition, tuple[Partition, int]] = {}
        self._codes: Codes = {}
        self._done = done
        self.is_begun = False
        """Whether all partitions have been tried."""

    def lists(self) -> list[Any]:
        return [partition.waiting_produces for partition, _ in self._ends.values()]

    def wait_for(self, where: TopicPartition, partition: Partition, end: int) -> None:
        """The marker is in the leader's log, up to an offset."""
        self._ends[where] = partition, end

    def settle(self, where: TopicPartition, code: int) -> None:
        self._codes[where] = code
        self._open.discard(where)
        self._ends.pop(where, None)

    def try_complete(self) -> bool:
        for where, (partition, end) in list(self._ends.items()):
            try:
                if partition.has_replicated(end):
                    self.settle(where, NONE)
            except ApiError as error:
                self.settle(where, error.code)
        if self._open:
            return False
        self._done(self._codes)
        return True

    def expire(self) -> None:
        for where in list(self._ends):
            self.settle(where, RequestTimedOut.code)
        # What the group coordinator still has it answers within a time of its own.
        self.is_done = self.try_complete()

    def answered(self, where: TopicPartition, code: int) -> None:
        """The group coordinator has answered."""
        self.settle(where, code)
        # While partitions are still being written to, the writer itself looks whether all is done.
        if self.is_begun:
            self.wake()


class _Ticket:
    """A marker that a group coordinator writes."""

    def __init__(self, writing: _Writing, where: TopicPartition) -> None:
        self._writing = writing
        self._where = where

    def answer(self, response: Any, /) -> None:
        self._writing.answered(self._where, NONE)

    def fail(self, error: ApiError, /) -> None:
        if isinstance(error, NotCoordinator | CoordinatorLoading | CoordinatorNotAvailable):
            error = NotLeader(error.message)  # the one that a transaction coordinator knows what to do about
        self._writing.answered(self._where, error.code)
