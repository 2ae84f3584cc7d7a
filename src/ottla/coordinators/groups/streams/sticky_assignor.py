"""Kafka's sticky assignor for streams groups: balanced over processes and threads, with as few moves as possible.

An active task goes to its previous owner, else to the owner of a standby, else to the least loaded process. A standby
goes to a previous owner in either role, else to the least loaded process without the task. No process has a task twice.
Ties depend on the sift order of Java's PriorityQueue (`protocol/java/priority_queue`), which `heapq` does not share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinators.groups.streams.tasks import TaskId, TaskIds, Tasks, iterate_tasks
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.java.priority_queue import JavaQueue


class AssignorMember(NamedTuple):
    """A member as the assignor sees it."""

    process_id: str
    target: Tasks
    """The member's part of the current target."""


class AssignorSubtopology(NamedTuple):
    """A subtopology as the assignor sees it."""

    tasks: int
    is_stateful: bool


def assign_tasks(
    members: Mapping[str, AssignorMember], subtopologies: Mapping[str, AssignorSubtopology], standbys: int
) -> dict[str, Tasks]:
    """Return the new target of each member. The order of members breaks ties."""
    assignment = _Assignment(members, subtopologies, standbys)
    assignment.assign_active([(name, number) for name, width in subtopologies.items() for number in range(width.tasks)])
    if standbys > 0:
        assignment.assign_standbys(
            [
                (name, number)
                for name, width in subtopologies.items()
                if width.is_stateful
                for number in range(width.tasks)
            ]
        )
    return assignment.targets()


class _Process:
    """A process, its members and the tasks assigned to them so far."""

    def __init__(self) -> None:
        self.load = 0.0
        self.counts: dict[str, int] = {}
        self.active: dict[str, list[TaskId]] = {}
        self.standby: dict[str, list[TaskId]] = {}
        self.tasks: set[TaskId] = set()
        self._task_count = 0
        self._by_count: JavaQueue[tuple[int, str]] | None = None

    def add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Assign a task to a member; return the member's number of tasks."""
        self._by_count = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        """Assign a task to the member with the fewest; return the member's number of tasks."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        if self._by_count is None:
            ids = hash_order(self.counts, string_hash, grown_table_size(len(self.counts)))
            self._by_count = JavaQueue(
                lambda entry: entry[0], ((self.counts[member_id], member_id) for member_id in ids)
            )
        _, member_id = self._by_count.poll()
        count = self._add(member_id, task, is_active=is_active)
        self._by_count.add((count, member_id))
        return count

    def _add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        self._task_count += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        self.counts[member_id] += 1
        self.load = self._task_count / len(self.counts)
        return self.counts[member_id]


class _Quota:
    """The maximum number of tasks of a member: the remaining tasks divided among members below the maximum."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.limit = _tasks_per_member(tasks, members)

    def note(self, count: int) -> None:
        """Note a member's new number of tasks."""
        if count == self.limit:
            self._members -= 1
            self._tasks -= count
            self.limit = _tasks_per_member(self._tasks, self._members)


def _tasks_per_member(tasks: int, members: int) -> int:
    return -(-tasks // members) if members > 0 and tasks > 0 else 0


class _Assignment:
    """The state of one assignment."""

    def __init__(
        self, members: Mapping[str, AssignorMember], subtopologies: Mapping[str, AssignorSubtopology], standbys: int
    ) -> None:
        self.members = members
        self.standbys = standbys
        self.processes: dict[str, _Process] = {}
        self.previous_active: dict[TaskId, str] = {}
        self.previous_standby: dict[TaskId, list[str]] = {}
        active = sum(width.tasks for width in subtopologies.values())
        stateful = sum(width.tasks for width in subtopologies.values() if width.is_stateful)
        self.active_quota = _Quota(active, len(members))
        self.quota = _Quota(active + stateful * standbys, len(members))
        for member_id, member in members.items():
            self.processes.setdefault(member.process_id, _Process()).counts[member_id] = 0
            self.previous_active.update(dict.fromkeys(iterate_tasks(member.target.active), member_id))
            for task in iterate_tasks(member.target.standby):
                self.previous_standby.setdefault(task, []).append(member_id)

    def assign_active(self, tasks: list[TaskId]) -> None:
        unassigned = []
        for task in sorted(tasks, key=_by_partition):
            member_id = self.previous_active.get(task)
            if member_id is None or not self._return_active(member_id, task):
                unassigned.append(task)
        tasks, unassigned = unassigned, []
        for task in tasks:
            member_id = self._least_loaded(self.previous_standby.get(task, ()), None)
            if member_id is None or not self._return_active(member_id, task):
                unassigned.append(task)
        queue = self._queue()
        for task in sorted(unassigned, key=_by_subtopology):
            if not queue:
                raise UnknownServerError(f"No process available to assign active task {task[0]}_{task[1]}.")
            process = queue.poll()
            self._note_active(process.add_to_least_loaded(task, is_active=True))
            queue.add(process)

    def assign_standbys(self, tasks: list[TaskId]) -> None:
        unassigned: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for number in range(self.standbys):
                if not self._keep_standby(task):
                    unassigned.append((task, self.standbys - number))
                    break
        queue = self._queue()
        for task, missing in sorted(unassigned, key=lambda item: _by_subtopology(item[0]), reverse=True):
            for _ in range(missing):
                if not self._assign_standby(queue, task):
                    break  # more replicas than processes

    def targets(self) -> dict[str, Tasks]:
        """Return the assigned tasks by member."""
        targets = {}
        for member_id, member in self.members.items():
            process = self.processes[member.process_id]
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            targets[member_id] = Tasks(_group_by_subtopology(active), _group_by_subtopology(standby), {})
        return targets

    def _process_of(self, member_id: str) -> _Process:
        return self.processes[self.members[member_id].process_id]

    def _return_active(self, member_id: str, task: TaskId) -> bool:
        process = self._process_of(member_id)
        if process.counts[member_id] >= self.active_quota.limit:
            return False
        self._note_active(process.add(member_id, task, is_active=True))
        return True

    def _note_active(self, count: int) -> None:
        self.active_quota.note(count)
        self.quota.note(count)

    def _keep_standby(self, task: TaskId) -> bool:
        """Assign a standby to a previous owner of the task; return whether that was possible."""
        member_id = self.previous_active.get(task)
        if member_id is not None:
            process = self._process_of(member_id)
            if task not in process.tasks and process.counts[member_id] < self.quota.limit:
                self.quota.note(process.add(member_id, task, is_active=False))
                return True
        member_id = self._least_loaded(self.previous_standby.get(task, ()), task)
        if member_id is None:
            return False
        process = self._process_of(member_id)
        if process.counts[member_id] >= self.quota.limit:
            return False
        self.quota.note(process.add(member_id, task, is_active=False))
        return True

    def _assign_standby(self, queue: JavaQueue[_Process], task: TaskId) -> bool:
        """Assign a standby to the least loaded process without the task; return whether there is one."""
        passed: list[_Process] = []
        is_assigned = False
        while queue and not is_assigned:
            process = queue.poll()
            passed.append(process)
            if task not in process.tasks:
                self.quota.note(process.add_to_least_loaded(task, is_active=False))
                is_assigned = True
        for process in reversed(passed):
            queue.add(process)
        return is_assigned

    def _least_loaded(self, member_ids: list[str] | tuple[()], task: TaskId | None) -> str | None:
        """Return the least loaded of the members, by process and own tasks; skip processes that have `task`."""
        if not member_ids:
            return None
        chosen = member_ids[0]
        first = self._process_of(chosen)
        load, count = first.load, first.counts[chosen]
        for member_id in member_ids[1:]:
            process = self._process_of(member_id)
            if (
                process.load < load
                and (task is None or task not in process.tasks)
                and process.counts[member_id] < count
            ):
                chosen, load, count = member_id, process.load, process.counts[member_id]
        # Like Kafka, check the process of the first member, not that of the chosen one.
        return chosen if task is None or task not in first.tasks else None

    def _queue(self) -> JavaQueue[_Process]:
        """Return the processes by load. Ties are in the order of Java's HashMap with capacity for all members."""
        buckets = 1 << max(len(self.members) - 1, 0).bit_length()
        while len(self.processes) > buckets * 0.75:
            buckets *= 2
        ids = hash_order(self.processes, string_hash, buckets)
        return JavaQueue(lambda process: process.load, (self.processes[process_id] for process_id in ids))


def _by_partition(task: TaskId) -> tuple[int, bytes]:
    return task[1], _java_text(task[0])


def _by_subtopology(task: TaskId) -> tuple[bytes, int]:
    return _java_text(task[0]), task[1]


def _java_text(text: str) -> bytes:
    """Return a key that sorts like Java's strings."""
    return text.encode("utf-16-be", "surrogatepass")


def _group_by_subtopology(tasks: list[TaskId] | tuple[()]) -> TaskIds:
    grouped: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        grouped.setdefault(subtopology, []).append(partition)
    return {subtopology: tuple(partitions) for subtopology, partitions in grouped.items()}
