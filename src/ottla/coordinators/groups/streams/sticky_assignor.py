"""Kafka's assignor for streams groups: balanced over processes and their threads, and as before where that is possible.

Active tasks go to who had them, then to who had them as standbys, then to the process that does least. Standbys go to
who had the task in either role, then to the process that does least and does not have it. No process has a task twice.
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
    """What it should have had so far."""


class AssignorSubtopology(NamedTuple):
    """A subtopology as the assignor sees it."""

    tasks: int
    is_stateful: bool


def assign_tasks(
    runners: Mapping[str, AssignorMember], subtopologies: Mapping[str, AssignorSubtopology], standbys: int
) -> dict[str, Tasks]:
    """What each member should have. The order of members counts where loads are equal."""
    dealing = _Dealing(runners, subtopologies, standbys)
    dealing.deal_active([(name, number) for name, width in subtopologies.items() for number in range(width.tasks)])
    if standbys > 0:
        dealing.deal_standbys(
            [
                (name, number)
                for name, width in subtopologies.items()
                if width.is_stateful
                for number in range(width.tasks)
            ]
        )
    return dealing.outcome()


class _Process:
    """A process and its members: what it has got so far."""

    def __init__(self) -> None:
        self.load = 0.0
        self.counts: dict[str, int] = {}
        self.active: dict[str, list[TaskId]] = {}
        self.standby: dict[str, list[TaskId]] = {}
        self.tasks: set[TaskId] = set()
        self._given = 0
        self._by_count: JavaQueue[tuple[int, str]] | None = None

    def add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Give a task to a member; how many that has then."""
        self._by_count = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_idlest(self, task: TaskId, *, is_active: bool) -> int:
        """Give a task to the member that has least; how many that has then."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        if self._by_count is None:
            ids = hash_order(self.counts, string_hash, grown_table_size(len(self.counts)))
            self._by_count = JavaQueue(lambda entry: entry[0], ((self.counts[each], each) for each in ids))
        _, member_id = self._by_count.poll()
        count = self._add(member_id, task, is_active=is_active)
        self._by_count.add((count, member_id))
        return count

    def _add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        self._given += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        self.counts[member_id] += 1
        self.load = self._given / len(self.counts)
        return self.counts[member_id]


class _Quota:
    """How many tasks a member may have: those that are left, shared by the members that are not full."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = _shared(tasks, members)

    def note(self, count: int) -> None:
        """A member has so many now."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = _shared(self._tasks, self._members)


def _shared(tasks: int, members: int) -> int:
    return -(-tasks // members) if members > 0 and tasks > 0 else 0


class _Dealing:
    """One assignment in the making."""

    def __init__(
        self, runners: Mapping[str, AssignorMember], subtopologies: Mapping[str, AssignorSubtopology], standbys: int
    ) -> None:
        self.runners = runners
        self.standbys = standbys
        self.processes: dict[str, _Process] = {}
        self.had_active: dict[TaskId, str] = {}
        self.had_standby: dict[TaskId, list[str]] = {}
        active = sum(width.tasks for width in subtopologies.values())
        stateful = sum(width.tasks for width in subtopologies.values() if width.is_stateful)
        self.active_quota = _Quota(active, len(runners))
        self.quota = _Quota(active + stateful * standbys, len(runners))
        for member_id, runner in runners.items():
            self.processes.setdefault(runner.process_id, _Process()).counts[member_id] = 0
            self.had_active.update(dict.fromkeys(iterate_tasks(runner.target.active), member_id))
            for task in iterate_tasks(runner.target.standby):
                self.had_standby.setdefault(task, []).append(member_id)

    def deal_active(self, tasks: list[TaskId]) -> None:
        left = []
        for task in sorted(tasks, key=_by_partition):
            member_id = self.had_active.get(task)
            if member_id is None or not self._give_back(member_id, task):
                left.append(task)
        tasks, left = left, []
        for task in tasks:
            member_id = self._idlest(self.had_standby.get(task, ()), None)
            if member_id is None or not self._give_back(member_id, task):
                left.append(task)
        queue = self._queue()
        for task in sorted(left, key=_by_subtopology):
            if not queue:
                raise UnknownServerError(f"No process available to assign active task {task[0]}_{task[1]}.")
            process = queue.poll()
            self._note_active(process.add_to_idlest(task, is_active=True))
            queue.add(process)

    def deal_standbys(self, tasks: list[TaskId]) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for number in range(self.standbys):
                if not self._keep_standby(task):
                    left.append((task, self.standbys - number))
                    break
        queue = self._queue()
        for task, missing in sorted(left, key=lambda item: _by_subtopology(item[0]), reverse=True):
            for _ in range(missing):
                if not self._give_standby(queue, task):
                    break  # there are fewer processes than replicas

    def outcome(self) -> dict[str, Tasks]:
        """What was dealt out."""
        found = {}
        for member_id, runner in self.runners.items():
            process = self.processes[runner.process_id]
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            found[member_id] = Tasks(_compact(active), _compact(standby), {})
        return found

    def _process_of(self, member_id: str) -> _Process:
        return self.processes[self.runners[member_id].process_id]

    def _give_back(self, member_id: str, task: TaskId) -> bool:
        process = self._process_of(member_id)
        if process.counts[member_id] >= self.active_quota.each:
            return False
        self._note_active(process.add(member_id, task, is_active=True))
        return True

    def _note_active(self, count: int) -> None:
        self.active_quota.note(count)
        self.quota.note(count)

    def _keep_standby(self, task: TaskId) -> bool:
        """Give a standby to a member that had the task."""
        member_id = self.had_active.get(task)
        if member_id is not None:
            process = self._process_of(member_id)
            if task not in process.tasks and process.counts[member_id] < self.quota.each:
                self.quota.note(process.add(member_id, task, is_active=False))
                return True
        member_id = self._idlest(self.had_standby.get(task, ()), task)
        if member_id is None:
            return False
        process = self._process_of(member_id)
        if process.counts[member_id] >= self.quota.each:
            return False
        self.quota.note(process.add(member_id, task, is_active=False))
        return True

    def _give_standby(self, queue: JavaQueue[_Process], task: TaskId) -> bool:
        """Give a standby to the process that does least and does not have the task."""
        passed: list[_Process] = []
        has_found = False
        while queue and not has_found:
            process = queue.poll()
            passed.append(process)
            if task not in process.tasks:
                self.quota.note(process.add_to_idlest(task, is_active=False))
                has_found = True
        for process in reversed(passed):
            queue.add(process)
        return has_found

    def _idlest(self, member_ids: list[str] | tuple[()], task: TaskId | None) -> str | None:
        """Of members that had a task, the one whose process and who itself has least; with a task, not having it."""
        if not member_ids:
            return None
        found = member_ids[0]
        first = self._process_of(found)
        load, count = first.load, first.counts[found]
        for member_id in member_ids[1:]:
            process = self._process_of(member_id)
            if (
                process.load < load
                and (task is None or task not in process.tasks)
                and process.counts[member_id] < count
            ):
                found, load, count = member_id, process.load, process.counts[member_id]
        # Kafka asks the first one's process, whoever was found.
        return found if task is None or task not in first.tasks else None

    def _queue(self) -> JavaQueue[_Process]:
        """The processes by load, in Java's order: its table is made for as many entries as there are members."""
        buckets = 1 << max(len(self.runners) - 1, 0).bit_length()
        while len(self.processes) > buckets * 0.75:
            buckets *= 2
        ids = hash_order(self.processes, string_hash, buckets)
        return JavaQueue(lambda process: process.load, (self.processes[each] for each in ids))


def _by_partition(task: TaskId) -> tuple[int, bytes]:
    return task[1], _java_text(task[0])


def _by_subtopology(task: TaskId) -> tuple[bytes, int]:
    return _java_text(task[0]), task[1]


def _java_text(text: str) -> bytes:
    """Sorts as Java's strings do."""
    return text.encode("utf-16-be", "surrogatepass")


def _compact(tasks: list[TaskId] | tuple[()]) -> TaskIds:
    found: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, []).append(partition)
    return {subtopology: tuple(partitions) for subtopology, partitions in found.items()}
