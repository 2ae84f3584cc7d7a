"""A member's way from what it runs to what its target gives it: first give up, then take, and wait for the rest.

A task stays its owner's until the owner says that it has let go. An active task has one owner; and no process has a
task in two roles, or a standby of it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import MemberState, StreamsGroupMember
from ottla.coordinators.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, TaskEpochs, TaskId, TaskIds, Tasks
from ottla.protocol.errors import FencedMemberEpoch

Reported = Tasks | None
"""The tasks that a member says it has; None if it says nothing."""


def reconcile(
    group: StreamsGroup, member: StreamsGroupMember, *, epoch: int, target: Tasks, reported: Reported
) -> StreamsGroupMember:
    """The member one step further towards the target of an epoch; the same one if it cannot go on."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == epoch:
                return member
            return _next(group, member, member.epoch, epoch, target, reported)
        case MemberState.UNREVOKED_TASKS:
            if reported is None or member.revoking.overlaps(reported):
                return member
            return _next(group, member, member.epoch + 1, epoch, target, reported)
        case MemberState.UNRELEASED_TASKS:
            return _next(group, member, member.epoch, epoch, target, reported)
        case _:
            # Written by a coordinator of a later version: the member begins anew.
            if reported is None or not reported.is_empty:
                raise FencedMemberEpoch(
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
                )
            return _next(group, member, epoch, epoch, target, reported)


def _next(
    group: StreamsGroup, member: StreamsGroupMember, own_epoch: int, epoch: int, target: Tasks, reported: Reported
) -> StreamsGroupMember:
    """Towards the target as far as it goes now; at an epoch of its own if there is something to give up first."""
    process_id = member.process_id
    active = _Difference(member.assigned.active, target.active)
    standby = _Difference(member.assigned.standby, target.standby)
    warmup = _Difference(member.assigned.warmup, target.warmup)
    revoking = OwnedTasks(
        {
            each: {partition: member.assigned.active[each][partition] for partition in partitions}
            for each, partitions in active.dropped.items()
        },
        standby.dropped,
        warmup.dropped,
    )
    kept_active = {
        each: {partition: member.assigned.active[each][partition] for partition in partitions}
        for each, partitions in active.kept.items()
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
    for each, partitions in new_active.items():
        kept_active[each] = dict(sorted({**kept_active.get(each, {}), **dict.fromkeys(partitions, epoch)}.items()))
    must_wait = waits_for_active or waits_for_standby or waits_for_warmup
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if must_wait else MemberState.STABLE,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=OwnedTasks(kept_active, _joined(standby.kept, new_standby), _joined(warmup.kept, new_warmup)),
        revoking=NOTHING_OWNED,
    )


class _Difference:
    """What is kept, dropped and wanted of tasks in one role."""

    def __init__(self, owned: TaskIds | TaskEpochs, target: TaskIds) -> None:
        self.kept: dict[str, tuple[int, ...]] = {}
        self.dropped: dict[str, tuple[int, ...]] = {}
        self._wanted: dict[str, list[int]] = {}
        has: dict[str, tuple[int, ...]] = {each: tuple(partitions) for each, partitions in owned.items()}
        for each in {**target, **has}:
            now, then = has.get(each, ()), target.get(each, ())
            kept = tuple(partition for partition in now if partition in then)
            dropped = tuple(partition for partition in now if partition not in then)
            wanted = [partition for partition in then if partition not in now]
            if kept:
                self.kept[each] = kept
            if dropped:
                self.dropped[each] = dropped
            if wanted:
                self._wanted[each] = wanted

    def free(self, is_taken: Callable[[TaskId], bool]) -> tuple[TaskIds, bool]:
        """What is wanted and can be had, and whether some of it cannot."""
        found = {}
        must_wait = False
        for each, partitions in self._wanted.items():
            free = tuple(partition for partition in partitions if not is_taken((each, partition)))
            must_wait = must_wait or len(free) < len(partitions)
            if free:
                found[each] = free
        return found, must_wait


def _joined(kept: TaskIds, new: TaskIds) -> TaskIds:
    return {each: tuple(sorted((*kept.get(each, ()), *new.get(each, ())))) for each in {**kept, **new}}
