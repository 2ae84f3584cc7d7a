"""Traps: files that say what is to happen to whoever comes to a certain moment first.

A trap is armed by the one who leads the fire, and sprung once: by a task, or by the process that commits a batch.
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


class Sprung(Exception):
    """What a trap raises."""


def arm(folder: Path, moment: str, action: str) -> Path:
    """Set a trap; it is sprung when its file is gone."""
    draft = folder / f"draft {uuid.uuid4().hex}"
    draft.write_text(action)
    return draft.rename(folder / moment)


def name_driver(folder: Path) -> None:
    """This process is the one that drives the queries."""
    (folder / _DRIVER).write_text(str(os.getpid()))


def pass_by(moment: str) -> None:
    """Go on, unless there is a trap."""
    folder = Path(os.environ[FOLDER])
    claimed = folder / f"claimed {uuid.uuid4().hex}"
    try:
        (folder / moment).rename(claimed)  # of two who come at once, one gets it
    except FileNotFoundError:
        return
    action = claimed.read_text()
    claimed.unlink()
    if action == "raise":
        raise Sprung(moment)
    if action == "kill the driver":
        kill_driver(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver(folder: Path) -> None:
    """End the driver at once: Python and Java, which are one group of processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int((folder / _DRIVER).read_text()), signal.SIGKILL)
