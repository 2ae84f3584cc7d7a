"""A streams group as a value that never changes: its topology, its members, its target, and who runs what.

    group epoch ≥ target's epoch ≥ each member's epoch

The group's epoch rises when members, topics, settings or the topology's validity change. A target, made for an epoch,
says who should run what. Members move towards it one by one with their heartbeats.
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
from ottla.coordinators.groups.streams.configuring import Configured
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.records import group_tombstones
from ottla.coordinators.groups.streams.tasks import NO_TASKS, OwnedTasks, TaskId, TaskIds, Tasks, iterate_tasks
from ottla.coordinators.groups.streams.topology import Topology
from ottla.metadata.image.values import NO_ENTRIES
from ottla.protocol.errors import StaleMemberEpoch, UnsupportedVersion
from ottla.storage.state_machine.entries import Stored

NOT_VALIDATED: Final = -1
"""The epoch of a validated topology while there is none."""

Processes = Map[TaskId, frozenset[str]]


@dataclass(frozen=True, slots=True)
class StreamsGroup(EpochGroup[StreamsGroupMember]):
    """A group of the streams protocol."""

    kind = "streams"

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Of the topics of its topology, as they were when the epoch began."""
    validated_epoch: int = 0
    """The epoch of the topology whose topics were found to be in order."""
    settings: Mapping[str, str] = NO_ENTRIES
    """Those that the epoch was made for."""
    topology: Topology | None = None
    members: Map[str, StreamsGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    """When the target was made; 0 if that is not known."""
    targets: Map[str, Tasks] = NO_ENTRIES
    # What follows from the members: the processes that run a task, be it to give it up.
    active: Map[TaskId, str] = NO_ENTRIES
    standby: Processes = NO_ENTRIES
    warmup: Processes = NO_ENTRIES
    # Not recorded:
    configured: Configured | None = None
    """What the topology came to with the topics that there are."""
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    is_delayed: bool = False
    """Whether its first target waits for more members."""
    shutdown_by: str | None = None
    """The member that wants the whole application to stop."""
    endpoint_epoch: int = 0
    """Rises when it changes which partitions are served at which endpoint."""

    # -- what all groups are asked --

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
        """Raise unless a member may commit. In an older epoch that depends on the partitions: `check_partitions`."""
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
        """Raise if a member commits in an older epoch for tasks that it has not had since then."""
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
        """Raise unless a member, if it is one who asks, has the epoch that it says."""
        if member_id is None and epoch < 0:
            return
        member = self.member("" if member_id is None else member_id)
        if epoch != member.epoch:
            raise StaleMemberEpoch(
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            )

    def check_offset_delete(self) -> None:
        """Anyone may, but for topics that are read."""

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members))

    # -- members --

    def target_of(self, member_id: str) -> Tasks:
        """What a member should run."""
        return self.targets.get(member_id, NO_TASKS)

    def is_in_process(self, task: TaskId, process_id: str) -> bool:
        """Whether a process has a task as a standby or to warm it up."""
        return process_id in self.standby.get(task, ()) or process_id in self.warmup.get(task, ())

    # -- changes --

    def with_member(self, new: StreamsGroupMember) -> StreamsGroup:
        """With a member added or changed."""
        group = self._without_tasks(self.members.get(new.id))
        return replace(group._with_tasks(new), members=self.members.set(new.id, new))

    def without_member(self, member_id: str) -> StreamsGroup:
        """Without a member; what it ran is free. The wish to stop goes with the last one."""
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
            standby=_left(self.standby, process_id, member.assigned.standby, member.revoking.standby),
            warmup=_left(self.warmup, process_id, member.assigned.warmup, member.revoking.warmup),
        )

    def _with_tasks(self, member: StreamsGroupMember) -> StreamsGroup:
        if member.assigned.is_empty and member.revoking.is_empty:
            return self
        process_id = member.process_id
        return replace(
            self,
            active=self.active.update(dict.fromkeys(_active_of(member), process_id)),
            standby=_joined(self.standby, process_id, member.assigned.standby, member.revoking.standby),
            warmup=_joined(self.warmup, process_id, member.assigned.warmup, member.revoking.warmup),
        )


def _active_of(member: StreamsGroupMember) -> Iterator[TaskId]:
    owned: tuple[OwnedTasks, ...] = (member.assigned, member.revoking)
    return (task for tasks in owned for task in iterate_tasks(tasks.active))


def _left(processes: Processes, process_id: str, *tasks: TaskIds) -> Processes:
    if not any(tasks):
        return processes
    changed = processes.mutate()
    for task in (task for each in tasks for task in iterate_tasks(each)):
        left = changed.get(task, frozenset()) - {process_id}
        if left:
            changed[task] = left
        else:
            changed.pop(task, None)
    return changed.finish()


def _joined(processes: Processes, process_id: str, *tasks: TaskIds) -> Processes:
    if not any(tasks):
        return processes
    changed = processes.mutate()
    for task in (task for each in tasks for task in iterate_tasks(each)):
        changed[task] = changed.get(task, frozenset()) | {process_id}
    return changed.finish()
