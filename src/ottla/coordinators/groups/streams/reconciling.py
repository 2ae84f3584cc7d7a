"""Reconciliation of a member's tasks with its target: revoke first, then take what is free, then wait for the rest.

A task belongs to its owner until the owner reports that it has revoked it. An active task has one owner. No process has
a task in two roles, or two standbys of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import MemberState, StreamsGroupMember
from ottla.coordinators.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, TaskEpochs, TaskId, TaskIds, Tasks
from ottla.protocol.errors import FencedMemberEpoch

Reported = Tasks | None
"""The tasks that a member reports to own; None if it reports none."""


def reconcile(
    group: StreamsGroup, member: StreamsGroupMember, *, epoch: int, target: Tasks, reported: Reported
) -> StreamsGroupMember:
    """Return the member after the next step towards the target; the same object if it cannot move."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == epoch:
                return member
            return _advance(group, member, member.epoch, epoch, target, reported)
        case MemberState.UNREVOKED_TASKS:
            if reported is None or member.revoking.overlaps(reported):
                return member
            return _advance(group, member, member.epoch + 1, epoch, target, reported)
        case MemberState.UNRELEASED_TASKS:
            return _advance(group, member, member.epoch, epoch, target, reported)
        case _:
            # A later version wrote the state: the member must start over.
            if reported is None or not reported.is_empty:
                raise FencedMemberEpoch(
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
                )
            return _advance(group, member, epoch, epoch, target, reported)


def _advance(
    group: StreamsGroup, member: StreamsGroupMember, own_epoch: int, epoch: int, target: Tasks, reported: Reported
) -> StreamsGroupMember:
    """Move towards the target as far as possible; stay at `own_epoch` if tasks must be revoked first."""
    process_id = member.process_id
    active = _Difference(member.assigned.active, target.active)
    standby = _Difference(member.assigned.standby, target.standby)
    warmup = _Difference(member.assigned.warmup, target.warmup)
    revoking = OwnedTasks(
        {
            subtopology: {partition: member.assigned.active[subtopology][partition] for partition in partitions}
            for subtopology, partitions in active.dropped.items()
        },
        standby.dropped,
        warmup.dropped,
    )
    kept_active = {
        subtopology: {partition: member.assigned.active[subtopology][partition] for partition in partitions}
        for subtopology, partitions in active.kept.items()
    }
    if not revoking.is_empty and (reported is None or revoking.overlaps(reported)):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=own_epoch,
            previous_epoch=member.epoch,
            assigned=OwnedTasks(kept_active, standby.kept, warmup.kept),
            revoking=revoking,
        )

    def is_taken(task: TaskId) -> bool:
        return task in group.active or group.is_in_process(task, process_id)

    def is_in_process(task: TaskId) -> bool:
        return group.active.get(task) == process_id or group.is_in_process(task, process_id)

    new_active, waits_for_active = active.free(is_taken)
    new_standby, waits_for_standby = standby.free(is_in_process)
    new_warmup, waits_for_warmup = warmup.free(is_in_process)
    for subtopology, partitions in new_active.items():
        owned = {**kept_active.get(subtopology, {}), **dict.fromkeys(partitions, epoch)}
        kept_active[subtopology] = dict(sorted(owned.items()))
    must_wait = waits_for_active or waits_for_standby or waits_for_warmup
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if must_wait else MemberState.STABLE,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=OwnedTasks(kept_active, _merged(standby.kept, new_standby), _merged(warmup.kept, new_warmup)),
        revoking=NOTHING_OWNED,
    )


class _Difference:
    """The kept, dropped and missing tasks of one role."""

    def __init__(self, owned: TaskIds | TaskEpochs, target: TaskIds) -> None:
        self.kept: dict[str, tuple[int, ...]] = {}
        self.dropped: dict[str, tuple[int, ...]] = {}
        self._missing: dict[str, list[int]] = {}
        current: dict[str, tuple[int, ...]] = {
            subtopology: tuple(partitions) for subtopology, partitions in owned.items()
        }
        for subtopology in {**target, **current}:
            now, then = current.get(subtopology, ()), target.get(subtopology, ())
            kept = tuple(partition for partition in now if partition in then)
            dropped = tuple(partition for partition in now if partition not in then)
            missing = [partition for partition in then if partition not in now]
            if kept:
                self.kept[subtopology] = kept
            if dropped:
                self.dropped[subtopology] = dropped
            if missing:
                self._missing[subtopology] = missing

    def free(self, is_taken: Callable[[TaskId], bool]) -> tuple[TaskIds, bool]:
        """Return the missing tasks that are free, and whether others are not."""
        free_tasks = {}
        must_wait = False
        for subtopology, partitions in self._missing.items():
            free = tuple(partition for partition in partitions if not is_taken((subtopology, partition)))
            must_wait = must_wait or len(free) < len(partitions)
            if free:
                free_tasks[subtopology] = free
        return free_tasks, must_wait


def _merged(kept: TaskIds, new: TaskIds) -> TaskIds:
    return {
        subtopology: tuple(sorted((*kept.get(subtopology, ()), *new.get(subtopology, ()))))
        for subtopology in {**kept, **new}
    }
