"""The histories of clients: their actions and the responses, as lines of JSON in one file per client.

Every event has `e` (its kind), `t` (its end in ns of the machine's monotonic clock) and `who` (the client).

| e | meaning and further fields |
|---|---|
| `ack` | a record was acknowledged: `topic`, `p` (partition), `o` (offset), `v` (the record's name) |
| `fail` | a record was given up, and may exist or not: `topic`, `p`, `v`, `why` |
| `epoch` | a producer bumped its epoch: `why` |
| `txn` | transaction `n` with `values` ([topic, partition, name]): `end` is open, commit, abort or unknown |
| `assign` | a consumer, with or without a `group`, was assigned partitions `p` of `topic`: assignment `a` |
| `poll` | a consumer read `r` ([offset, name]) of `topic`, `p`, which belongs to its assignment `a` |
| `commit` | a consumer committed `offsets` (partition → offset) of `topic` for `group`, from time `b`: `ok` or not |
| `final` | the contents `r` of `topic`, `p` at the end |
| `note` | text for people: `what` |

The value of a record begins with its name, which is unique, and a space.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Recorder:
    """Writes the history of one client. It is thread-safe."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        # A client that is started again appends to its file.
        self._file = (folder / f"{who}.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def note(self, text: str) -> None:
        self.write("note", what=text)

    def write(self, kind: str, **fields: Any) -> None:
        event = {"e": kind, "t": time.monotonic_ns(), "who": self.who, **fields}
        with self._lock:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")


def read_history(folder: Path) -> list[Event]:
    """Return the events of all clients in chronological order."""
    events = [event for file in sorted(folder.glob("*.jsonl")) for event in _read_events(file)]
    events.sort(key=lambda event: event["t"])
    return events


def _read_events(file: Path) -> Iterator[Event]:
    lines = file.read_text().split("\n")
    for number, line in enumerate(lines):
        try:
            if line:
                yield json.loads(line)
        except ValueError:
            # A client that was killed may have left an incomplete line before it was started again.
            assert '"e":' in line[:10], f"{file.name}:{number + 1} is not an event: {line[:100]!r}"


def name_of(value: bytes | str | None) -> str:
    """Return the name at the beginning of a record's value."""
    assert value is not None
    text = value if isinstance(value, str) else value.decode()
    return text.split(" ", 1)[0]


def make_value(name: str, padding: int) -> bytes:
    """Return a record's value with a name and some padding."""
    return f"{name} {'x' * padding}".encode()


def by_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["e"] == kind]
