"""Runs a pipeline once, at intervals, or continuously.

One process at a time runs a project. A failed run ends the command if it runs once; on a schedule it is reported, and
the next run starts as planned. A continuous schedule starts the next run as soon as topics have new records.
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
from ottla.spark.pipelines.locks import LockHeld, hold_lock, is_held, stop_holder
from ottla.spark.pipelines.project import Project, ProjectError
from ottla.spark.pipelines.run import Run, RunFailed, RunOptions
from ottla.spark.pipelines.server import ServerFailed, ServerHome

FAILURES: Final = (ProjectError, RunFailed, ServerFailed, NoJava)
_LOOK_S: Final = 1.0
_WITHOUT_TOPICS_S: Final = 10.0
_AFTER_FAILURE_S: Final = 5.0
_STOP_S: Final = 60.0


class Schedule(NamedTuple):
    """When to run: once, unless one of these is set."""

    every_s: float | None = None
    is_continuous: bool = False

    @property
    def is_once(self) -> bool:
        return self.every_s is None and not self.is_continuous


class Runner:
    """Runs a project by a schedule."""

    def __init__(self, project: Project, report: Callable[[Event], None], show: Callable[[str], None]) -> None:
        self._project = project
        self._home = ServerHome(project)
        self._log = EventLog(project.event_log)
        self._report_to = report
        self._show = show
        self._last: Run | None = None

    def run(self, options: RunOptions, schedule: Schedule) -> None:
        """Run until the schedule ends or an interrupt arrives; raise one of FAILURES. SIGTERM is an interrupt."""
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            with hold_lock(_run_lock(self._project)) as lock:
                os.ftruncate(lock, 0)
                os.write(lock, str(os.getpid()).encode())
                self._repeat(options, schedule)
        except LockHeld:
            raise RunFailed(
                f"{self._project.name} is being run by another process; stop it by `ottla pipeline stop`"
            ) from None
        finally:
            signal.signal(signal.SIGTERM, before)

    def _repeat(self, options: RunOptions, schedule: Schedule) -> None:
        if schedule.is_once:
            self._run_once(options)
            return
        while True:
            began_s = time.monotonic()
            failed = False
            try:
                self._run_once(options)
                options = RunOptions(refresh=options.refresh)  # a full refresh is done only once
            except FAILURES as error:
                failed = True
                self._show(f"{error}\nThe next run tries again.")
            if schedule.every_s is not None:
                time.sleep(max(began_s + schedule.every_s - time.monotonic(), 0))
            elif failed:
                time.sleep(_AFTER_FAILURE_S)
            else:
                self._await_records()

    def _run_once(self, options: RunOptions) -> None:
        address = self._project.spark
        if not self._project.is_remote:
            address = self._home.ensure(self._show).address
        self._last = Run(self._project, address, self._report, read_last_offsets(self._project.event_log))
        self._last.execute(options)

    def _report(self, event: Event) -> None:
        self._log.add(event)
        self._report_to(event)

    def _await_records(self) -> None:
        """Wait until a topic has new records, or for a while if flows also read other sources."""
        assert self._last is not None, "a run has finished"
        deadline = time.monotonic() + _WITHOUT_TOPICS_S
        while not self._last.has_new_records():
            if time.monotonic() > deadline and not self._last.reads_only_topics:
                return
            time.sleep(_LOOK_S)


def stop_runner(project: Project) -> bool:
    """Stop the process that runs the project; return whether there was one. Raise ServerFailed if it does not end."""
    lock = _run_lock(project)
    if not is_held(lock):
        return False
    while not (text := lock.read_text()):
        time.sleep(0.01)  # the holder has just taken the lock and is about to write its process id
    pid = int(text)
    if not stop_holder(lock, pid, signal.SIGTERM, _STOP_S):
        raise ServerFailed(
            f"process {pid}, which runs {project.name}, did not end within {_STOP_S:g} s of SIGTERM; end it by "
            f"kill -9 {pid}"
        )
    return True


def is_running(project: Project) -> bool:
    return is_held(_run_lock(project))


def read_last_offsets(log: Path) -> dict[str, Offsets]:
    """Return the last offsets that each flow has reported."""
    offsets: dict[str, Offsets] = {}
    for event in read_events(log):
        if event.get("event") == "progress" and "offsets" in event:
            offsets[event["flow"]] = from_json(event["offsets"])
    return offsets


def _run_lock(project: Project) -> Path:
    return project.home / "run.lock"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
