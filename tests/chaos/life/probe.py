"""Runs a node that counts its objects on request: `python probe.py DESCRIPTOR serve server.properties`.

The arguments after the descriptor are those of the `ottla` command. The descriptor is a socket to the process that
starts the node. A thread answers queries on it; queries and answers are lines of JSON. The node itself runs unchanged.

{"query": "census"}                          counts of all objects by type, allocated blocks, threads
{"query": "holders", "kind": "a.b.C"}        the chain of references to an object of this type
{"query": "holders", "kind": "str", "text": "orders"}    the chain of references to a value that contains a text
"""

import gc
import json
import socket
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

_CHUNK = 1000
_MAX_HOLDERS = 12


def take_census() -> dict[str, Any]:
    """Count the objects of this process, without garbage."""
    gc.collect()
    counts: Counter[str] = Counter()
    tracked = gc.get_objects()
    own = {id(tracked)}
    names: dict[type, str] = {}
    seen: set[int] = set()
    for value in tracked:
        counts[_name(type(value), names)] += 1
    # Objects without references to containers are not tracked, so follow the references of the tracked ones.
    untracked: list[Any] = []
    for start in range(0, len(tracked), _CHUNK):
        for value in gc.get_referents(*tracked[start : start + _CHUNK]):
            if id(value) not in seen and id(value) not in own and not gc.is_tracked(value):
                seen.add(id(value))
                untracked.append(value)
    del tracked
    while untracked:
        for value in untracked:
            counts[_name(type(value), names)] += 1
        referents = gc.get_referents(*(value for value in untracked if isinstance(value, (tuple, dict))))
        untracked = [
            value
            for value in {id(value): value for value in referents}.values()
            if id(value) not in seen and not gc.is_tracked(value)
        ]
        seen.update(map(id, untracked))
    del seen
    return {"objects": counts, "blocks": sys.getallocatedblocks(), "threads": threading.active_count()}


def _name(kind: type, names: dict[type, str]) -> str:
    name = names.get(kind)
    if name is None:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        names[kind] = name
    return name


def _contains(value: Any, name: str, text: str) -> bool:
    return _name(type(value), {}) == name and len(shown := repr(value)) < 60 and text in shown and value != text


def find_holders(kind: str, text: str = "") -> list[str]:
    """Return the chain of references to the newest object of a type, or to a value that contains a text."""
    gc.collect()
    tracked = gc.get_objects()
    if text:
        current = next(
            (
                candidate
                for candidate in reversed(tracked)
                if any(_contains(value, kind, text) for value in gc.get_referents(candidate))
            ),
            None,
        )
    else:
        current = next((candidate for candidate in reversed(tracked) if _name(type(candidate), {}) == kind), None)
    del tracked
    if current is None:
        return [f"no object refers to a {kind} {text}"]
    chain, seen = [_show(current)], {id(current)}
    while len(chain) < _MAX_HOLDERS and (holder := _find_holder(current, seen)) is not None:
        current = holder
        chain.append(_show(current))
    return chain


def _find_holder(value: Any, seen: set[int]) -> Any:
    """Return an unseen object that refers to a value. Return None if only frames refer to it."""
    referrers = gc.get_referrers(value)
    seen.add(id(referrers))
    holder = next(
        (referrer for referrer in referrers if id(referrer) not in seen and not isinstance(referrer, FrameType)), None
    )
    seen.add(id(holder))
    return holder


def _show(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, (dict, list, set, tuple)) else ""
    return f"{_name(type(value), {})}{size}: {repr(value)[:160]}"


def serve_queries(connection: socket.socket) -> None:
    """Answer queries until the other side closes the connection."""
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            lines.write(json.dumps(answer(**json.loads(line))) + "\n")
            lines.flush()


def answer(query: str, **arguments: str) -> Any:
    return find_holders(**arguments) if query == "holders" else take_census()


def main() -> None:
    sys.path.pop(0)  # do not import from this folder
    from ottla.cli.main import main as ottla

    gc.freeze = lambda: None  # frozen objects cannot be counted
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=serve_queries, args=(connection,), name="probe", daemon=True).start()
    sys.exit(ottla(sys.argv[2:]))


if __name__ == "__main__":
    main()
