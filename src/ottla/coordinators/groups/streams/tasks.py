"""Tasks: a subtopology and a partition number. Members run them as active, standby or warm-up tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

TaskIds = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology, sorted. Never changed in place."""
TaskEpochs = Mapping[str, Mapping[int, int]]
"""Partitions by subtopology, each with the epoch in which the member got it. Never changed in place."""
TaskId = tuple[str, int]


class Tasks(NamedTuple):
    """The tasks of a target, or those that a member reports."""

    active: TaskIds
    standby: TaskIds
    warmup: TaskIds

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


class OwnedTasks(NamedTuple):
    """The tasks that a member owns."""

    active: TaskEpochs
    standby: TaskIds
    warmup: TaskIds

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, tasks: Tasks) -> bool:
        """Whether one of the given tasks is among these, in the same role."""
        return (
            _overlaps(self.active, tasks.active)
            or _overlaps(self.standby, tasks.standby)
            or _overlaps(self.warmup, tasks.warmup)
        )

    def includes(self, tasks: Tasks) -> bool:
        """Whether all given tasks are among these, in the same role."""
        return (
            _includes(self.active, tasks.active)
            and _includes(self.standby, tasks.standby)
            and _includes(self.warmup, tasks.warmup)
        )


NO_TASKS: Final = Tasks({}, {}, {})
NOTHING_OWNED: Final = OwnedTasks({}, {}, {})


def iterate_tasks(tasks: TaskIds | TaskEpochs) -> Iterator[TaskId]:
    """Iterate over the tasks."""
    return ((subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions)


def _overlaps(owned: TaskIds | TaskEpochs, tasks: TaskIds) -> bool:
    return any(partition in owned.get(subtopology, ()) for subtopology, partition in iterate_tasks(tasks))


def _includes(owned: TaskIds | TaskEpochs, tasks: TaskIds) -> bool:
    return all(partition in owned.get(subtopology, ()) for subtopology, partition in iterate_tasks(tasks))
