"""The events of runs: one JSON object per line in the project's event log.

    {"time": "2026-01-31T12:00:00.000Z", "run": "3f2a…", "event": "progress", "flow": "orders", "rows": 900, ...}

Events: `run started`, `flows defined`, `flow` (with its state), `progress` (a micro-batch: its rows, the rows that did
not meet an expectation, its offsets), `view` (the rows of a view), `lag` (records that a flow has not read), `failure`,
`run finished`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

Event: TypeAlias = dict[str, Any]
_TAIL_BYTES: Final = 1 << 20


def make_event(run: str, kind: str, **about: Any) -> Event:
    """Return an event with the current time."""
    now_s = time.time()
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
    return {"time": f"{seconds}.{int(now_s * 1000) % 1000:03d}Z", "run": run, "event": kind, **about}


class EventLog:
    """A file to which events are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, event: Event) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of the file's last megabyte, without incomplete lines."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _TAIL_BYTES, 0))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
