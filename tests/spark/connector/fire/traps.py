"""Traps: files that define what happens to the first process that reaches a certain moment.

The fire arms a trap. A task, or the process that commits a batch, springs it once.
"""

import contextlib
import os
import signal
import uuid
from pathlib import Path

FOLDER = "FIRE_TRAPS"
TASK_MOMENTS = ("rows come", "rows are gone", "task begins", "task has written")
COMMIT_MOMENTS = ("commit begins", "decided", "half committed", "committed")
MOMENTS = (*TASK_MOMENTS, *COMMIT_MOMENTS)
ACTIONS = ("raise", "kill", "kill the driver")
_DRIVER = "driver.pid"


class TrapSprung(Exception):
    """A trap with the action `raise` was sprung."""


def arm(folder: Path, moment: str, action: str) -> Path:
    """Arm a trap and return its file, which disappears when the trap is sprung."""
    draft = folder / f"draft {uuid.uuid4().hex}"
    draft.write_text(action)
    return draft.rename(folder / moment)


def name_driver(folder: Path) -> None:
    """Record this process as the driver of the queries."""
    (folder / _DRIVER).write_text(str(os.getpid()))


def trigger(moment: str) -> None:
    """Spring the trap for this moment, if there is one."""
    folder = Path(os.environ[FOLDER])
    claimed = folder / f"claimed {uuid.uuid4().hex}"
    try:
        (folder / moment).rename(claimed)  # only one of several processes succeeds
    except FileNotFoundError:
        return
    action = claimed.read_text()
    claimed.unlink()
    if action == "raise":
        raise TrapSprung(moment)
    if action == "kill the driver":
        kill_driver(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver(folder: Path) -> None:
    """Kill the driver's process group: Python and Java."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int((folder / _DRIVER).read_text()), signal.SIGKILL)
