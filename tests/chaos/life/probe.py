"""A node that can be asked what it holds: `python probe.py DESCRIPTOR serve server.properties`.

The arguments behind the descriptor are those of the `ottla` command. A thread answers questions that come over the
descriptor, a socket that the starting process holds the other end of. A question is a line of JSON, and so is its
answer. The product does not know about any of this: it runs as it is.

{"ask": "census"}                         counts of all objects by type, blocks of the allocator, threads
{"ask": "holders", "kind": "a.b.C"}       what holds some object of this type, and what holds that, and so on
{"ask": "holders", "kind": "str", "text": "orders"}   the same of a value with a text in it
"""

import gc
import json
import socket
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

_COLLECT_EVERY_N = 1000
_HOLDERS = 12


def census() -> dict[str, Any]:
    """What this process holds, without garbage."""
    gc.collect()
    counts: Counter[str] = Counter()
    tracked = gc.get_objects()
    own = {id(tracked)}
    names: dict[type, str] = {}
    seen: set[int] = set()
    for each in tracked:
        counts[_name(type(each), names)] += 1
    # What holds nothing that could hold something else is not in the list: look at what the objects refer to.
    fresh: list[Any] = []
    for start in range(0, len(tracked), _COLLECT_EVERY_N):
        for each in gc.get_referents(*tracked[start : start + _COLLECT_EVERY_N]):
            if id(each) not in seen and id(each) not in own and not gc.is_tracked(each):
                seen.add(id(each))
                fresh.append(each)
    del tracked
    while fresh:
        for each in fresh:
            counts[_name(type(each), names)] += 1
        held = gc.get_referents(*(each for each in fresh if isinstance(each, (tuple, dict))))
        fresh = [
            each
            for each in {id(each): each for each in held}.values()
            if id(each) not in seen and not gc.is_tracked(each)
        ]
        seen.update(map(id, fresh))
    del seen
    return {"objects": counts, "blocks": sys.getallocatedblocks(), "threads": threading.active_count()}


def _name(kind: type, names: dict[type, str]) -> str:
    name = names.get(kind)
    if name is None:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        names[kind] = name
    return name


def _has(found: Any, name: str, text: str) -> bool:
    return _name(type(found), {}) == name and len(shown := repr(found)) < 60 and text in shown and found != text


def holders(kind: str, text: str = "") -> list[str]:
    """The way from the newest object of a type, or from something that holds a value, to what holds that."""
    gc.collect()
    tracked = gc.get_objects()
    if text:
        found = next(
            (each for each in reversed(tracked) if any(_has(at, kind, text) for at in gc.get_referents(each))), None
        )
    else:
        found = next((each for each in reversed(tracked) if _name(type(each), {}) == kind), None)
    del tracked
    if found is None:
        return [f"nothing holds a {kind} {text}"]
    way, seen = [_show(found)], {id(found)}
    while len(way) < _HOLDERS and (above := _holder(found, seen)) is not None:
        found = above
        way.append(_show(found))
    return way


def _holder(found: Any, seen: set[int]) -> Any:
    """Something that refers to an object, and was not seen yet; None if there is nothing but what this module does."""
    above = gc.get_referrers(found)
    seen.add(id(above))
    chosen = next((each for each in above if id(each) not in seen and not isinstance(each, FrameType)), None)
    seen.add(id(chosen))
    return chosen


def _show(each: Any) -> str:
    size = f" of {len(each)}" if isinstance(each, (dict, list, set, tuple)) else ""
    return f"{_name(type(each), {})}{size}: {repr(each)[:160]}"


def answer_questions(connection: socket.socket) -> None:
    """Until the other side closes."""
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            question = json.loads(line)
            lines.write(json.dumps(answer(**question)) + "\n")
            lines.flush()


def answer(ask: str, **about: str) -> Any:
    """The answer to a question."""
    return holders(**about) if ask == "holders" else census()


def main() -> None:
    sys.path.pop(0)  # this folder is not a place to import from
    from ottla.cli.main import main as ottla

    gc.freeze = lambda: None  # what is frozen cannot be counted
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=answer_questions, args=(connection,), name="probe", daemon=True).start()
    sys.exit(ottla(sys.argv[2:]))


if __name__ == "__main__":
    main()
