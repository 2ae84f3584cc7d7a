"""What an image does not say about the states of partitions and replicas: which replicas are new, and which deletions
brokers have yet to carry out.

    tracker.follow(changes)             with every image, on the active controller and on every standby
    tracker.record_heartbeat(broker_id, ...)       with every heartbeat, on the active controller
    tracker.replica_counts()            for the gauges: costs nothing while nothing changes

A broker reports in its heartbeats up to which offset it has applied the metadata, and brokers remove replicas as they
apply: Apache Kafka's do so, too. So a broker in service has removed a replica once it reports the offset of the image
that took the replica away, unless the replica's directory is offline: a replica there waits until its directory is
back. No request is sent for this, and a broker needs to know nothing of it.

A new active controller has followed the same images before, but has heard no heartbeats. It learns from the log alone
that a broker has removed replicas if that broker registered after the deletion and came into service: for that it has
to read its own registration. For other brokers a standby assumes it after a minute in service, so that it does not
gather all deletions there ever were; what is younger waits for the next heartbeat. What a controller replays in one go
when it starts, a topic's creation and its deletion, it does not see as a deletion.
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
"""Deletions that are tracked at a time, each of one topic in one image; the oldest are forgotten first."""
ASSUMED_AFTER_MS: Final = 60_000
"""A standby assumes that a broker in service has applied what is older than this."""

PartitionsByDirectory = dict[bytes, "array[int]"]
"""Partition numbers by the directory that holds the replica."""


@dataclass(slots=True)
class Deletion:
    """The replicas of one topic that one image took from their brokers."""

    topic: str
    topic_id: bytes
    offset: int
    """The image's: a broker that has applied it has removed its replicas."""
    timestamp_ms: int
    started: dict[int, PartitionsByDirectory] = field(default_factory=dict)
    """By broker, what it has yet to remove."""
    successful: dict[int, PartitionsByDirectory] = field(default_factory=dict)
    """By broker, what it has removed. The replicas cease to exist when no broker has any left to remove."""

    def replicas(self) -> Iterator[tuple[int, int, ReplicaState]]:
        """Partition, broker and state of each replica."""
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
    """How many replicas were in each state, and in which image."""

    placement: object
    brokers: object
    generation: int
    counts: dict[ReplicaState, int]


class PartitionStates(NamedTuple):
    """One partition: its state, and that of the replica on each broker."""

    number: int
    leader: int
    state: PartitionState
    replicas: dict[int, ReplicaState]


class StateTracker:
    """The states of all partitions and replicas of a cluster."""

    def __init__(self) -> None:
        self.image: Image = EMPTY
        self.is_active = False
        """Whether heartbeats come in here, so that nothing need be assumed."""
        self.forgotten = 0
        """Deletions that were dropped because too many were under way."""
        self._new: dict[int, set[tuple[bytes, int]]] = {}
        """By broker, its replicas that have yet to join the ISR for the first time."""
        self._never_led: set[tuple[bytes, int]] = set()
        """The partitions that have yet to have their first leader."""
        self._deletions: dict[int, Deletion] = {}
        """By number, in the order of their offsets."""
        self._next_number = 0
        self._assumed_before = 0
        """The number of the first deletion that is too young to assume anything of."""
        self._by_broker: dict[int, dict[int, Deletion]] = {}
        """By broker, the deletions that it has yet to carry out."""
        self._generation = 0
        """Rises with every change that the image does not show."""
        self._counted = _Counted(None, None, 0, {})

    # -- following --

    def follow(self, changes: Changes) -> None:
        """Take in the next image."""
        self.image = changes.new
        self._follow_partitions(changes)
        for change in changes.brokers:
            self._follow_broker(change.key, change.new)
        if not self.is_active:
            self._assume_applied()

    def record_heartbeat(self, broker_id: int, offset: int, offline_directories: Iterable[bytes] = ()) -> None:
        """A broker in service reports up to which offset it has applied the metadata, and which directories failed."""
        if broker_id in self._by_broker:
            self._complete_deletions(broker_id, offset, frozenset(offline_directories))

    def _follow_partitions(self, changes: Changes) -> None:
        gone: dict[bytes, Deletion] = {}
        for change in changes.partitions:
            old, new = change.old, change.new
            if new is not None:
                if old is not None and old.replicas == new.replicas and not old.adding and not new.adding:
                    if self._never_led:
                        self._follow_never_led(change, new)
                    continue  # the ISR or the leader changed, which the image itself says
                if new.adding or (old is not None and old.adding):
                    self._follow_new(change, new)
                self._follow_never_led(change, new)
            if old is not None and (new is None or old.replicas != new.replicas):
                self._follow_leaving(change, old, gone)
        for deletion in gone.values():
            self._start_deletion(deletion)

    def _follow_never_led(self, change: PartitionChange, new: Partition) -> None:
        key = change.topic.id, change.number
        if partition_state(new) is PartitionState.NEW:
            self._never_led.add(key)
        else:
            self._never_led.discard(key)

    def _follow_new(self, change: PartitionChange, new: Partition) -> None:
        """Note which of a partition's replicas are new, and which are not any more."""
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

    def _follow_leaving(self, change: PartitionChange, old: Partition, gone: dict[bytes, Deletion]) -> None:
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
            deletion = gone.get(topic.id)
            if deletion is None:
                deletion = gone[topic.id] = Deletion(topic.name, topic.id, self.image.offset, self.image.timestamp)
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
            # A broker comes into service when it has applied its own registration, and with it all that is older.
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
        """A broker has applied all up to an offset: what it had to remove is gone, but for what is in directories that
        are not online."""
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
        """Nothing more is expected of a broker for a deletion; with the last broker the deletion is over."""
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
        """Take brokers in service to have applied what is old enough. Each deletion is looked at once."""
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

    # -- looking --

    @property
    def deletions(self) -> Iterable[Deletion]:
        """What brokers have yet to carry out, the oldest first."""
        return self._deletions.values()

    def is_new(self, topic_id: bytes, number: int, broker_id: int) -> bool:
        """Whether a replica has yet to join the ISR for the first time."""
        return (topic_id, number) in self._new.get(broker_id, ())

    def states_of(self, topic: Topic, first: int, end: int) -> Iterator[PartitionStates]:
        """The states of some of a topic's partitions."""
        for number, partition in enumerate(topic.partitions[first:end], first):
            replicas = {
                broker_id: replica_state(
                    self.image, partition, broker_id, is_new=self.is_new(topic.id, number, broker_id)
                )
                for broker_id in partition.replicas
            }
            yield PartitionStates(number, partition.leader, partition_state(partition), replicas)

    def partition_counts(self) -> dict[PartitionState, int]:
        """How many partitions there are in each state."""
        placement = self.image.placement
        leaderless, new = count_partitions(placement.leaderless), len(self._never_led)
        return {
            PartitionState.NEW: new,
            PartitionState.ONLINE: placement.partition_count - leaderless,
            PartitionState.OFFLINE: leaderless - new,
        }

    def replica_counts(self) -> dict[ReplicaState, int]:
        """How many replicas there are in each state. The same image is counted once."""
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
        """How many replicas of a broker in service are in an ISR although their directory failed. The controller leaves
        them there only as the last of their ISR, and such a partition has no leader."""
        in_sync = self.image.placement.isr.get(broker.id, NO_ENTRIES)
        failed = 0
        for topic_id, mask in self.image.placement.leaderless.items():
            for number in partition_numbers(mask & in_sync.get(topic_id, 0)):
                partition = self.image.topics_by_id[topic_id].partitions[number]
                failed += not can_serve(self.image, partition, broker.id)
        return failed
