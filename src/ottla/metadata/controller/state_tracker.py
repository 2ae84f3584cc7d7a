"""Tracks what an image does not show about partitions and replicas: new replicas, and pending replica deletions.

    tracker.follow(changes)                   with every image, on the active controller and on standbys
    tracker.record_heartbeat(broker_id, ...)  with every heartbeat, on the active controller
    tracker.replica_counts()                  for the gauges; free while nothing changes

A broker removes replicas as it applies the metadata, as Apache Kafka's brokers do, and reports the applied offset in
its heartbeats. So an unfenced broker has removed a replica once it reports the offset of the image that took the
replica away. The exception is a replica in an offline directory, which waits until the directory is back. The protocol
needs no extra request for this.

A new active controller has followed the same images, but has received no heartbeats. The log shows that a broker has
removed replicas if the broker registered after the deletion and was unfenced, because it had to apply its own
registration. For other unfenced brokers a standby assumes the removal after a minute, so that deletions do not
accumulate; younger deletions wait for the next heartbeat. A controller that starts and replays the creation and the
deletion of a topic together does not track that deletion.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.metadata.controller.replica_states import (
    PartitionState,
    ReplicaState,
    can_serve,
    find_steps,
    partition_state,
    replica_state,
    take_step,
)
from ottla.metadata.controller.view import has_online_directory
from ottla.metadata.image.changes import Changes, PartitionChange
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.placement import count_partitions, partition_numbers
from ottla.metadata.image.values import NO_ENTRIES, Broker, Partition, Topic

MAX_DELETIONS: Final = 5_000
"""The most deletions that are tracked, each of one topic in one image; the oldest are dropped first."""
ASSUMED_AFTER_MS: Final = 60_000
"""A standby assumes that an unfenced broker has applied what is older than this."""

PartitionsByDirectory = dict[bytes, "array[int]"]
"""Partition numbers by the directory that holds the replica."""


@dataclass(slots=True)
class Deletion:
    """The replicas of one topic that one image removes from their brokers."""

    topic: str
    topic_id: bytes
    offset: int
    """The offset of the image. A broker that has applied it has removed its replicas."""
    timestamp_ms: int
    started: dict[int, PartitionsByDirectory] = field(default_factory=dict)
    """By broker, the replicas that it has not removed yet."""
    successful: dict[int, PartitionsByDirectory] = field(default_factory=dict)
    """By broker, the replicas that it has removed. The deletion ends when `started` is empty."""

    def replicas(self) -> Iterator[tuple[int, int, ReplicaState]]:
        """Return the partition, broker and state of each replica."""
        for state, brokers in (
            (ReplicaState.DELETION_STARTED, self.started),
            (ReplicaState.DELETION_SUCCESSFUL, self.successful),
        ):
            for broker_id, directories in brokers.items():
                for numbers in directories.values():
                    for number in numbers:
                        yield number, broker_id, state

    def count(self, state: ReplicaState) -> int:
        brokers = self.started if state is ReplicaState.DELETION_STARTED else self.successful
        return sum(len(numbers) for directories in brokers.values() for numbers in directories.values())


_DELETED: Final = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)


class _Counted(NamedTuple):
    """The number of replicas in each state, with the image that was counted."""

    placement: object
    brokers: object
    generation: int
    counts: dict[ReplicaState, int]


class PartitionStates(NamedTuple):
    """The state of a partition and, by broker, of its replicas."""

    number: int
    leader: int
    state: PartitionState
    replicas: dict[int, ReplicaState]


class StateTracker:
    """The states of all partitions and replicas of a cluster."""

    def __init__(self) -> None:
        self.image: Image = EMPTY
        self.is_active = False
        """Whether this node is the active controller and receives heartbeats, so that it need not assume removals."""
        self.forgotten = 0
        """The number of deletions that were dropped because there were too many."""
        self._new: dict[int, set[tuple[bytes, int]]] = {}
        """By broker, its replicas that have never been in the ISR."""
        self._never_led: set[tuple[bytes, int]] = set()
        """The partitions that have never had a leader."""
        self._deletions: dict[int, Deletion] = {}
        """By number, in the order of their offsets."""
        self._next_number = 0
        self._assumed_before = 0
        """The number of the first deletion that is too young to be assumed complete."""
        self._by_broker: dict[int, dict[int, Deletion]] = {}
        """By broker, its pending deletions."""
        self._generation = 0
        """Rises with every change that the image does not show, to invalidate the counts."""
        self._counted = _Counted(None, None, 0, {})

    # -- following --

    def follow(self, changes: Changes) -> None:
        """Follow the changes to the next image."""
        self.image = changes.new
        self._follow_partitions(changes)
        for change in changes.brokers:
            self._follow_broker(change.key, change.new)
        if not self.is_active:
            self._assume_applied()

    def record_heartbeat(self, broker_id: int, offset: int, offline_directories: Iterable[bytes] = ()) -> None:
        """Record up to which offset an unfenced broker has applied the metadata, and its offline directories."""
        if broker_id in self._by_broker:
            self._complete_deletions(broker_id, offset, frozenset(offline_directories))

    def _follow_partitions(self, changes: Changes) -> None:
        deletions: dict[bytes, Deletion] = {}
        for change in changes.partitions:
            old, new = change.old, change.new
            if new is not None:
                if old is not None and old.replicas == new.replicas and not old.adding and not new.adding:
                    if self._never_led:
                        self._follow_never_led(change, new)
                    continue  # the ISR or the leader changed, which the image shows
                if new.adding or (old is not None and old.adding):
                    self._follow_new(change, new)
                self._follow_never_led(change, new)
            if old is not None and (new is None or old.replicas != new.replicas):
                self._follow_leaving(change, old, deletions)
        for deletion in deletions.values():
            self._start_deletion(deletion)

    def _follow_never_led(self, change: PartitionChange, new: Partition) -> None:
        key = change.topic.id, change.number
        if partition_state(new) is PartitionState.NEW:
            self._never_led.add(key)
        else:
            self._never_led.discard(key)

    def _follow_new(self, change: PartitionChange, new: Partition) -> None:
        """Update which replicas of a partition are new."""
        key = change.topic.id, change.number
        for broker_id in new.replicas:
            was_new = self.is_new(*key, broker_id)
            arrives = change.old is None or broker_id not in change.old.replicas
            if not was_new and not arrives:
                continue
            before = ReplicaState.NEW if was_new else ReplicaState.NON_EXISTENT
            state = replica_state(self.image, new, broker_id, is_new=broker_id in new.adding)
            (*_, after) = find_steps(before, state) or (before,)
            if after is not ReplicaState.NEW:
                self._clear_new(broker_id, key)
            elif not was_new:
                self._new.setdefault(broker_id, set()).add(key)
                self._generation += 1

    def _follow_leaving(self, change: PartitionChange, old: Partition, deletions: dict[bytes, Deletion]) -> None:
        topic, number = change.topic, change.number
        if change.new is None:
            self._never_led.discard((topic.id, number))
        staying = () if change.new is None else change.new.replicas
        for broker_id, directory in zip(old.replicas, old.directories, strict=True):
            if broker_id in staying:
                continue
            self._clear_new(broker_id, (topic.id, number))
            if broker_id not in self.image.brokers:
                continue  # an unregistered broker removes nothing
            deletion = deletions.get(topic.id)
            if deletion is None:
                deletion = deletions[topic.id] = Deletion(topic.name, topic.id, self.image.offset, self.image.timestamp)
            directories = deletion.started.setdefault(broker_id, {})
            if directory not in directories:
                directories[directory] = array("i")
            directories[directory].append(number)

    def _follow_broker(self, broker_id: int, broker: Broker | None) -> None:
        for key in [*self._new.get(broker_id, ())]:
            partition = self.image.partition_by_id(*key)
            if partition is None or not can_serve(self.image, partition, broker_id):
                take_step(ReplicaState.NEW, ReplicaState.OFFLINE)
                self._clear_new(broker_id, key)
        if broker_id not in self._by_broker:
            return
        if broker is None:
            self._forget_broker(broker_id)
        elif not broker.fenced:
            # An unfenced broker has applied its own registration, and with it everything older.
            self._complete_deletions(broker_id, broker.epoch - 1)

    def _clear_new(self, broker_id: int, key: tuple[bytes, int]) -> None:
        held = self._new.get(broker_id)
        if held is None or key not in held:
            return
        held.remove(key)
        self._generation += 1
        if not held:
            del self._new[broker_id]

    # -- deletions --

    def _start_deletion(self, deletion: Deletion) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        self._deletions[number] = deletion
        self._generation += 1
        for broker_id in deletion.started:
            self._by_broker.setdefault(broker_id, {})[number] = deletion
        if len(self._deletions) > MAX_DELETIONS:
            oldest = next(iter(self._deletions))
            for broker_id in [*self._deletions[oldest].started]:
                self._finish_for_broker(broker_id, oldest)
            self._deletions.pop(oldest, None)
            self.forgotten += 1

    def _complete_deletions(self, broker_id: int, offset: int, failed: frozenset[bytes] = frozenset()) -> None:
        """Complete a broker's deletions up to an applied offset, except in offline directories."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return
        for number, deletion in [*self._by_broker[broker_id].items()]:
            if deletion.offset > offset:
                break
            self._mark_removed(broker, number, deletion, failed)

    def _mark_removed(
        self, broker: Broker, number: int, deletion: Deletion, failed: frozenset[bytes] = frozenset()
    ) -> None:
        directories = deletion.started[broker.id]
        for directory in [*directories]:
            if directory not in failed and has_online_directory(broker, directory):
                take_step(ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
                deletion.successful.setdefault(broker.id, {})[directory] = directories.pop(directory)
                self._generation += 1
        if not directories:
            self._finish_for_broker(broker.id, number)

    def _finish_for_broker(self, broker_id: int, number: int) -> None:
        """Drop a broker from a deletion. The deletion ends with its last broker."""
        deletion = self._deletions[number]
        del deletion.started[broker_id]
        waiting = self._by_broker[broker_id]
        del waiting[number]
        if not waiting:
            del self._by_broker[broker_id]
        if not deletion.started:
            del self._deletions[number]
        self._generation += 1

    def _forget_broker(self, broker_id: int) -> None:
        take_step(ReplicaState.DELETION_STARTED, ReplicaState.NON_EXISTENT)
        for number in [*self._by_broker[broker_id]]:
            self._finish_for_broker(broker_id, number)

    def _assume_applied(self) -> None:
        """Assume that unfenced brokers have applied old deletions. Each deletion is visited once."""
        before_ms = self.image.timestamp - ASSUMED_AFTER_MS
        while self._assumed_before < self._next_number:
            deletion = self._deletions.get(self._assumed_before)
            if deletion is not None:
                if deletion.timestamp_ms > before_ms:
                    return
                for broker_id in [*deletion.started]:
                    broker = self.image.brokers[broker_id]
                    if not broker.fenced:
                        self._mark_removed(broker, self._assumed_before, deletion)
            self._assumed_before += 1

    # -- states and counts --

    @property
    def deletions(self) -> Iterable[Deletion]:
        """The pending deletions, the oldest first."""
        return self._deletions.values()

    def is_new(self, topic_id: bytes, number: int, broker_id: int) -> bool:
        """Whether a replica has never been in the ISR."""
        return (topic_id, number) in self._new.get(broker_id, ())

    def states_of(self, topic: Topic, first: int, end: int) -> Iterator[PartitionStates]:
        """Return the states of a range of a topic's partitions."""
        for number, partition in enumerate(topic.partitions[first:end], first):
            replicas = {
                broker_id: replica_state(
                    self.image, partition, broker_id, is_new=self.is_new(topic.id, number, broker_id)
                )
                for broker_id in partition.replicas
            }
            yield PartitionStates(number, partition.leader, partition_state(partition), replicas)

    def partition_counts(self) -> dict[PartitionState, int]:
        """Return the number of partitions in each state."""
        placement = self.image.placement
        leaderless, new = count_partitions(placement.leaderless), len(self._never_led)
        return {
            PartitionState.NEW: new,
            PartitionState.ONLINE: placement.partition_count - leaderless,
            PartitionState.OFFLINE: leaderless - new,
        }

    def replica_counts(self) -> dict[ReplicaState, int]:
        """Return the number of replicas in each state. The same image is counted once."""
        placement, brokers = self.image.placement, self.image.brokers
        counted = self._counted
        if counted.placement is placement and counted.brokers is brokers and counted.generation == self._generation:
            return counted.counts
        alive = [broker for broker in brokers.values() if not broker.fenced]
        new = sum(map(len, self._new.values()))
        online = sum(placement.isr_counts.get(broker.id, 0) - self._without_directory(broker) for broker in alive)
        counts = {
            ReplicaState.NEW: new,
            ReplicaState.ONLINE: online,
            ReplicaState.OFFLINE: placement.replica_count - online - new,
            **{state: sum(deletion.count(state) for deletion in self.deletions) for state in _DELETED},
        }
        self._counted = _Counted(placement, brokers, self._generation, counts)
        return counts

    def _without_directory(self, broker: Broker) -> int:
        """Return how many replicas of an unfenced broker are in an ISR although their directory is offline.

        The controller leaves such a replica only as the last member of an ISR, and the partition then has no leader.
        """
        in_sync = self.image.placement.isr.get(broker.id, NO_ENTRIES)
        failed = 0
        for topic_id, mask in self.image.placement.leaderless.items():
            for number in partition_numbers(mask & in_sync.get(topic_id, 0)):
                partition = self.image.topics_by_id[topic_id].partitions[number]
                failed += not can_serve(self.image, partition, broker.id)
        return failed
