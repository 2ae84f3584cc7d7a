"""When a pipeline runs: once, at intervals, or continuously, one run after the other.

One process runs a project at a time. A run that fails ends the command if it was to run once; on a schedule it is told,
and the next one comes at its time. Continuous runs follow each other at once while topics have something new, and else
wait for it.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from ottla.spark.connector.positions import Offsets, from_json
from ottla.spark.pipelines.events import Event, EventLog, read_events
from ottla.spark.pipelines.java import NoJava
from ottla.spark.pipelines.locks import Taken, end_holder, held, is_held
from ottla.spark.pipelines.project import Project, ProjectError
from ottla.spark.pipelines.running import Choice, Run, RunFailed
from ottla.spark.pipelines.server import ServerFailed, ServerHome

FAILURES: Final = (ProjectError, RunFailed, ServerFailed, NoJava)
_LOOK_S: Final = 1.0
_WITHOUT_TOPICS_S: Final = 10.0
_AFTER_FAILURE_S: Final = 5.0
_STOP_S: Final = 60.0


class Schedule(NamedTuple):
    """Once, unless one of these is set."""

    every_s: float | None = None
    is_continuous: bool = False

    @property
    def is_once(self) -> bool:
        return self.every_s is None and not self.is_continuous


class Runner:
    """Runs one project."""

    def __init__(self, project: Project, report: Callable[[Event], None], tell: Callable[[str], None]) -> None:
        self._project = project
        self._home = ServerHome(project)
        self._log = EventLog(project.event_log)
        self._report_to = report
        self._tell = tell
        self._last: Run | None = None

    def run(self, choice: Choice, schedule: Schedule) -> None:
        """Run until done, or until interrupted; raises one of FAILURES. SIGTERM is an interrupt."""
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            with held(_run_lock(self._project)) as lock:
                os.ftruncate(lock, 0)
                os.write(lock, str(os.getpid()).encode())
                self._repeat(choice, schedule)
        except Taken:
            raise RunFailed(
                f"{self._project.name} is being run by another process; `ottla pipeline stop` ends it"
            ) from None
        finally:
            signal.signal(signal.SIGTERM, before)

    def _repeat(self, choice: Choice, schedule: Schedule) -> None:
        if schedule.is_once:
            self._once(choice)
            return
        while True:
            began_s = time.monotonic()
            failed = False
            try:
                self._once(choice)
                choice = Choice(refresh=choice.refresh)  # what was computed anew is so once
            except FAILURES as error:
                failed = True
                self._tell(f"{error}\nThe next run tries again.")
            if schedule.every_s is not None:
                time.sleep(max(began_s + schedule.every_s - time.monotonic(), 0))
            elif failed:
                time.sleep(_AFTER_FAILURE_S)
            else:
                self._await_records()

    def _once(self, choice: Choice) -> None:
        address = self._project.spark
        if not self._project.is_remote:
            address = self._home.ensure(self._tell).address
        self._last = Run(self._project, address, self._report, last_offsets(self._project.event_log))
        self._last.execute(choice)

    def _report(self, event: Event) -> None:
        self._log.add(event)
        self._report_to(event)

    def _await_records(self) -> None:
        """Return when a topic has something new, or after a while if flows read something else."""
        assert self._last is not None, "a run went before"
        deadline = time.monotonic() + _WITHOUT_TOPICS_S
        while not self._last.has_new_records():
            if time.monotonic() > deadline and not self._last.reads_only_topics:
                return
            time.sleep(_LOOK_S)


def stop_runner(project: Project) -> bool:
    """End the process that runs the project; whether there was one. Raises ServerFailed if it does not end."""
    lock = _run_lock(project)
    if not is_held(lock):
        return False
    while not (text := lock.read_text()):
        time.sleep(0.01)  # it was taken this very moment, and its holder writes who it is
    pid = int(text)
    if not end_holder(lock, pid, signal.SIGTERM, _STOP_S):
        raise ServerFailed(f"process {pid}, which runs {project.name}, does not end")
    return True


def is_running(project: Project) -> bool:
    return is_held(_run_lock(project))


def last_offsets(log: Path) -> dict[str, Offsets]:
    """What each flow had read when it last said so."""
    found: dict[str, Offsets] = {}
    for event in read_events(log):
        if event.get("event") == "progress" and "offsets" in event:
            found[event["flow"]] = from_json(event["offsets"])
    return found


def _run_lock(project: Project) -> Path:
    return project.home / "run.lock"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
