"""A streams group as an immutable value: its topology, its members, its target assignment and the owners of tasks.

    group epoch ≥ target assignment epoch ≥ epoch of each member

The group epoch rises when members, topics, settings or the topology's validity change. The target assignment is
computed for one group epoch. Each member moves towards it with its own heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from ottla.coordinators.groups.epoch_group import (
    FIRST_COMMIT_WITH_EPOCH,
    FIRST_EPOCH,
    REFRESH_DUE,
    EpochGroup,
    RefreshDeadline,
    reconciliation_state,
)
from ottla.coordinators.groups.state import CommittedOffset, CommittedPartition
from ottla.coordinators.groups.streams.configuring import ConfiguredTopology
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.records import group_tombstones
from ottla.coordinators.groups.streams.tasks import NO_TASKS, OwnedTasks, TaskId, TaskIds, Tasks, iterate_tasks
from ottla.coordinators.groups.streams.topology import Topology
from ottla.metadata.image.values import NO_ENTRIES
from ottla.protocol.errors import StaleMemberEpoch, UnsupportedVersion
from ottla.storage.state_machine.entries import Stored

NOT_VALIDATED: Final = -1
"""The validated topology epoch while no topology is validated."""

Processes = Map[TaskId, frozenset[str]]


@dataclass(frozen=True, slots=True)
class StreamsGroup(EpochGroup[StreamsGroupMember]):
    """A group of the streams protocol."""

    kind = "streams"

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the topology's topics at the group epoch."""
    validated_epoch: int = 0
    """The epoch of the topology that was last validated."""
    settings: Mapping[str, str] = NO_ENTRIES
    """The assignment settings at the group epoch."""
    topology: Topology | None = None
    members: Map[str, StreamsGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    """When the target was computed; 0 if unknown."""
    targets: Map[str, Tasks] = NO_ENTRIES
    # Derived from the members: the processes of each task, including those that must revoke it.
    active: Map[TaskId, str] = NO_ENTRIES
    standby: Processes = NO_ENTRIES
    warmup: Processes = NO_ENTRIES
    # Not recorded:
    configured: ConfiguredTopology | None = None
    """The topology configured with the current topics."""
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    is_delayed: bool = False
    """Whether the first target waits for the initial rebalance delay."""
    shutdown_by: str | None = None
    """The member that requested the shutdown of the whole application."""
    endpoint_epoch: int = 0
    """Rises with each change of the partitions served at endpoints."""

    # -- the interface of all groups --

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        return reconciliation_state(self)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        """Raise unless the member may commit. Commits in older epochs also need `check_partitions`."""
        if epoch < 0 and not self.members:
            return
        if in_transaction and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not in_transaction and version < FIRST_COMMIT_WITH_EPOCH:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the streams group protocol"
            )
        if epoch > member.epoch:
            raise StaleMemberEpoch(f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")

    def check_partitions(self, member_id: str, epoch: int, partitions: Iterable[CommittedPartition]) -> None:
        """Raise if a member commits in an older epoch for a task that it got after that epoch."""
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return
        if self.topology is None:
            raise StaleMemberEpoch("Topology is not available for offset commit validation.")
        for topic, _, partition in partitions:
            subtopology = self.topology.readers.get(topic)
            if subtopology is None:
                raise StaleMemberEpoch(f"Topic {topic} is not in the topology.")
            since = member.epoch_of(subtopology, partition)
            if since is None:
                raise StaleMemberEpoch(
                    f"Task {subtopology}-{partition} is not assigned or pending revocation for member."
                )
            if epoch < since:
                raise StaleMemberEpoch(
                    f"Received member epoch {epoch} is older than assignment epoch {since} for task "
                    f"{subtopology}-{partition}."
                )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise if the request names a member whose epoch differs."""
        if member_id is None and epoch < 0:
            return
        member = self.member("" if member_id is None else member_id)
        if epoch != member.epoch:
            raise StaleMemberEpoch(
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            )

    def check_offset_delete(self) -> None:
        """Allow everyone; offsets of subscribed topics are kept in any case."""

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members))

    # -- members --

    def target_of(self, member_id: str) -> Tasks:
        """Return the member's part of the target."""
        return self.targets.get(member_id, NO_TASKS)

    def is_in_process(self, task: TaskId, process_id: str) -> bool:
        """Whether a process has a standby or warm-up task."""
        return process_id in self.standby.get(task, ()) or process_id in self.warmup.get(task, ())

    # -- changes --

    def with_member(self, new: StreamsGroupMember) -> StreamsGroup:
        """Return the group with a member added or replaced."""
        group = self._without_tasks(self.members.get(new.id))
        return replace(group._with_tasks(new), members=self.members.set(new.id, new))

    def without_member(self, member_id: str) -> StreamsGroup:
        """Return the group without a member; its tasks are free. The last member takes the shutdown request with it."""
        group = self._without_tasks(self.members[member_id])
        members = self.members.delete(member_id)
        return replace(group, members=members, shutdown_by=group.shutdown_by if members else None)

    def with_target(self, member_id: str, target: Tasks) -> StreamsGroup:
        return replace(self, targets=self.targets.set(member_id, target))

    def without_target(self, member_id: str) -> StreamsGroup:
        return replace(self, targets=self.targets.delete(member_id)) if member_id in self.targets else self

    def _without_tasks(self, member: StreamsGroupMember | None) -> StreamsGroup:
        if member is None or (member.assigned.is_empty and member.revoking.is_empty):
            return self
        process_id = member.process_id
        active = self.active.mutate()
        for task in _active_of(member):
            if active.get(task) == process_id:
                del active[task]
        return replace(
            self,
            active=active.finish(),
            standby=_remove_process(self.standby, process_id, member.assigned.standby, member.revoking.standby),
            warmup=_remove_process(self.warmup, process_id, member.assigned.warmup, member.revoking.warmup),
        )

    def _with_tasks(self, member: StreamsGroupMember) -> StreamsGroup:
        if member.assigned.is_empty and member.revoking.is_empty:
            return self
        process_id = member.process_id
        return replace(
            self,
            active=self.active.update(dict.fromkeys(_active_of(member), process_id)),
            standby=_add_process(self.standby, process_id, member.assigned.standby, member.revoking.standby),
            warmup=_add_process(self.warmup, process_id, member.assigned.warmup, member.revoking.warmup),
        )


def _active_of(member: StreamsGroupMember) -> Iterator[TaskId]:
    owned: tuple[OwnedTasks, ...] = (member.assigned, member.revoking)
    return (task for tasks in owned for task in iterate_tasks(tasks.active))


def _remove_process(processes: Processes, process_id: str, *tasks: TaskIds) -> Processes:
    if not any(tasks):
        return processes
    changed = processes.mutate()
    for task in (task for task_ids in tasks for task in iterate_tasks(task_ids)):
        remaining = changed.get(task, frozenset()) - {process_id}
        if remaining:
            changed[task] = remaining
        else:
            changed.pop(task, None)
    return changed.finish()


def _add_process(processes: Processes, process_id: str, *tasks: TaskIds) -> Processes:
    if not any(tasks):
        return processes
    changed = processes.mutate()
    for task in (task for task_ids in tasks for task in iterate_tasks(task_ids)):
        changed[task] = changed.get(task, frozenset()) | {process_id}
    return changed.finish()
