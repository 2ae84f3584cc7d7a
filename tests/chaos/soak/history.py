"""What clients did and what they were told, as lines of JSON: one file a client, written as things happen.

Every event has `e` (what it is), `t` (when it was over, in ns of the machine's monotonic clock) and `who` (the client).

| e | what more |
|---|---|
| `ack` | a record was acknowledged: `topic`, `p` (partition), `o` (offset), `v` (the record's name) |
| `fail` | a record was given up, and may be there or not: `topic`, `p`, `v`, `why` |
| `epoch` | a producer goes on with another epoch: `why` |
| `txn` | a transaction `n` of `values` ([topic, partition, name]): `end` is open, commit, abort or unknown |
| `assign` | a consumer, of a `group` or of none, has got partitions `p` of `topic`: its assignment `a` |
| `poll` | a consumer has read `r` ([offset, name]) of `topic`, `p`, which it has since its assignment `a` |
| `commit` | a consumer has asked at `b` to commit `offsets` (partition → offset) of `topic` for `group`: `ok` or not |
| `final` | all of `topic`, `p` as it was read in the end: `r`, with the `isolation` of the reader |
| `note` | for people: `what` |

Every record's value begins with its name, which no other record has, and a blank.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Recorder:
    """Writes the history of one client. Several threads may use it."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        # A client that is started again goes on with its file.
        self._file = (folder / f"{who}.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def note(self, what: str) -> None:
        self.write("note", what=what)

    def write(self, kind: str, **more: Any) -> None:
        event = {"e": kind, "t": time.monotonic_ns(), "who": self.who, **more}
        with self._lock:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")


def read_history(folder: Path) -> list[Event]:
    """The events of all clients, in the order of time."""
    found = [event for file in sorted(folder.glob("*.jsonl")) for event in _events(file)]
    found.sort(key=lambda event: event["t"])
    return found


def _events(file: Path) -> Iterator[Event]:
    lines = file.read_text().split("\n")
    for number, line in enumerate(lines):
        try:
            if line:
                yield json.loads(line)
        except ValueError:
            # A client that was killed may have been in the middle of its last line, before it was started again.
            assert '"e":' in line[:10], f"{file.name}:{number + 1} is not of a history: {line[:100]!r}"


def name_of(value: bytes | str | None) -> str:
    """The name of a record, which its value begins with."""
    assert value is not None
    text = value if isinstance(value, str) else value.decode()
    return text.split(" ", 1)[0]


def named(name: str, padding: int) -> bytes:
    return f"{name} {'x' * padding}".encode()


def by_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["e"] == kind]
