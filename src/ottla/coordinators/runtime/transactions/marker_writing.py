"""Writing of transaction markers to partitions that this broker leads, confirmed when all in-sync replicas have them.

Markers for `__consumer_offsets` go through the partition's group coordinator, which applies or drops the transaction's
pending offsets in the order of its log.
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
ErrorCodes = dict[TopicPartition, int]
Done = Callable[[ErrorCodes], None]


class MarkerWriter:
    """Writes transaction markers to partitions that this broker leads."""

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

    def write(self, marker: Marker, partitions: Collection[TopicPartition], done: Done) -> None:
        """Write a marker to partitions. `done` gets an error code for each, at once or later."""
        marker_write = _MarkerWrite(set(partitions), done)
        for topic_partition in partitions:
            try:
                self._write(marker_write, marker, topic_partition)
            except ApiError as error:
                marker_write.settle(topic_partition, error.code)
            except OSError:
                marker_write.settle(topic_partition, StorageFailed.code)
        marker_write.is_begun = True
        complete_or_wait(marker_write, marker_write.lists(), self._timer, self._timeout_ms)

    def _write(self, marker_write: _MarkerWrite, marker: Marker, topic_partition: TopicPartition) -> None:
        partition = self._partitions.find(topic_partition.topic, topic_partition.partition)
        if partition is None:
            # The transaction coordinator finds out whether another broker has a replica.
            raise UnknownTopicOrPartition(f"no replica of {topic_partition.topic}-{topic_partition.partition} is here")
        if topic_partition.topic == GROUPS_TOPIC:
            ticket = _Ticket(marker_write, topic_partition)
            try:
                shard = self._groups.shard_at(topic_partition.partition)
                shard.submit("WriteTxnMarkers", lambda _: Decision([marker], None), ticket)
            except ApiError as error:
                ticket.fail(error)
            return
        marker_write.wait_for(topic_partition, partition, append_marker(partition, marker, self._now_ms()))


def append_marker(partition: Partition, marker: Marker, now_ms: int) -> int:
    """Append a marker as the leader; return the offset after it."""
    partition.check_leader()
    if partition.is_under_min_isr:
        in_sync = len(partition.assignment.isr)
        raise NotEnoughReplicas(f"{partition.topic}-{partition.index} has only {in_sync} replicas in sync")
    return partition.append_marker(marker, now_ms).last_offset + 1


class _MarkerWrite(Operation):
    """The write of one marker to several partitions."""

    __slots__ = ("_codes", "_done", "_ends", "_open", "is_begun")

    def __init__(self, partitions: set[TopicPartition], done: Done) -> None:
        super().__init__()
        self._open = partitions
        self._ends: dict[TopicPartition, tuple[Partition, int]] = {}
        self._codes: ErrorCodes = {}
        self._done = done
        self.is_begun = False
        """Whether all partitions have been tried."""

    def lists(self) -> list[Any]:
        return [partition.waiting_produces for partition, _ in self._ends.values()]

    def wait_for(self, topic_partition: TopicPartition, partition: Partition, end: int) -> None:
        """Wait until the replicas have the marker, which ends at an offset."""
        self._ends[topic_partition] = partition, end

    def settle(self, topic_partition: TopicPartition, code: int) -> None:
        self._codes[topic_partition] = code
        self._open.discard(topic_partition)
        self._ends.pop(topic_partition, None)

    def try_complete(self) -> bool:
        for topic_partition, (partition, end) in list(self._ends.items()):
            try:
                if partition.has_replicated(end):
                    self.settle(topic_partition, NONE)
            except ApiError as error:
                self.settle(topic_partition, error.code)
        if self._open:
            return False
        self._done(self._codes)
        return True

    def expire(self) -> None:
        for topic_partition in list(self._ends):
            self.settle(topic_partition, RequestTimedOut.code)
        # The group coordinator answers the rest within its own write timeout.
        self.is_done = self.try_complete()

    def answered(self, topic_partition: TopicPartition, code: int) -> None:
        """Note the response of the group coordinator."""
        self.settle(topic_partition, code)
        # While `write` is still running, it checks for completion itself.
        if self.is_begun:
            self.wake()


class _Ticket:
    """The ticket of a marker that a group coordinator writes."""

    def __init__(self, marker_write: _MarkerWrite, topic_partition: TopicPartition) -> None:
        self._marker_write = marker_write
        self._topic_partition = topic_partition

    def answer(self, response: Any, /) -> None:
        self._marker_write.answered(self._topic_partition, NONE)

    def fail(self, error: ApiError, /) -> None:
        if isinstance(error, NotCoordinator | CoordinatorLoading | CoordinatorNotAvailable):
            error = NotLeader(error.message)  # the error that a transaction coordinator retries
        self._marker_write.answered(self._topic_partition, error.code)
