"""The checker finds what it is for, and nothing else."""

from typing import Any

import pytest

from tests.chaos.soak.checker import check

Said = tuple[str, dict[str, Any]]


def final(topic: str = "plain", *records: tuple[int, str], part: int = 0) -> Said:
    return "final", {"who": "end", "topic": topic, "p": part, "r": [list(each) for each in records]}


def ack(name: str, offset: int | None, topic: str = "plain") -> Said:
    return "ack", {"who": name.split("/")[0], "topic": topic, "p": 0, "o": offset, "v": name}


def poll(*records: tuple[int, str], topic: str = "plain", who: str = "c", assignment: int = 1) -> Said:
    return "poll", {"who": who, "a": assignment, "topic": topic, "p": 0, "r": [list(each) for each in records]}


def assign(who: str = "c", assignment: int = 1, group: str | None = None) -> Said:
    more = {"group": group} if group else {}
    return "assign", {"who": who, "a": assignment, "topic": "plain", "p": [0], **more}


def commit(offset: int, *, ok: bool = True) -> Said:
    return "commit", {"who": "c", "b": 0, "group": "g", "topic": "plain", "offsets": {"0": offset}, "ok": ok}


def txn(end: str, *records: tuple[str, int, str], number: int = 1) -> Said:
    return "txn", {"who": "t", "n": number, "values": [list(each) for each in records], "end": end}


def kinds(*said: Said) -> set[str]:
    """What the checker says of a history whose events come one after the other."""
    return {each.kind for each in check([{"e": kind, "t": at, **more} for at, (kind, more) in enumerate(said)])}


A, B, C = "w/0/0", "w/0/1", "w/0/2"
ALL = final("plain", (0, A), (1, B), (2, C))
X, Y = ("tx", 0, "t/1/0"), ("tx", 1, "t/1/1")

GOOD: dict[str, list[Said]] = {
    "all is there": [ack(A, 0), ack(B, 1), assign(), poll((0, A), (1, B)), poll((2, C)), ALL],
    "records may be acknowledged without their places": [ack(A, None), ack(B, None), ALL],
    "a record without an answer may be missing": [ack(A, 0), final("plain", (0, A))],
    "a gap that a marker left is no skip": [
        assign(),
        poll((0, A), (5, B)),
        final("plain", (0, A), (5, B)),
    ],
    "a new assignment may read again": [
        assign("c", 1, "g"),
        poll((0, A), (1, B)),
        assign("c", 2, "g"),
        poll((0, A), assignment=2),
        ALL,
    ],
    "a commit that was refused may have happened": [
        assign("c", 1, "g"),
        poll((0, A), (1, B)),
        commit(2, ok=False),
        assign("c", 2, "g"),
        poll((2, C), assignment=2),
        ALL,
    ],
    "whoever gave up a record may repeat others": [
        ("fail", {"who": "w", "topic": "plain", "p": 0, "v": C, "why": "time"}),
        final("plain", (0, B), (1, A), (2, B)),
        final("copy", (0, B), (3, A), (4, B)),
    ],
    "whoever goes on with another epoch may repeat what was not answered": [
        ("epoch", {"who": "w", "why": "skipped sequence numbers"}),
        ack(A, 1),
        final("plain", (0, A), (1, A)),
        final("copy", (0, A), (3, A)),
    ],
    "a transaction that is whole": [txn("commit", X, Y), final("tx", (0, X[2])), final("tx", (0, Y[2]), part=1)],
    "an aborted one that is not there": [txn("abort", X, Y), final("tx"), final("tx", part=1)],
    "one that nobody knows of, which is there": [
        txn("unknown", X, Y),
        final("tx", (0, X[2])),
        final("tx", (0, Y[2]), part=1),
    ],
}

BAD: dict[str, tuple[str, list[Said]]] = {
    "a record without a place is gone": ("lost write", [ack("w/0/9", None), ALL]),
    "an acknowledged record is gone": ("lost write", [ack(A, 0), ack(B, 1), final("plain", (0, A))]),
    "a record is elsewhere": ("lost write", [ack(A, 3), final("plain", (0, A))]),
    "a committed transaction is gone": ("lost write", [txn("commit", X, Y), final("tx"), final("tx", part=1)]),
    "a record is there twice": ("duplicate", [ack(A, 0), final("plain", (0, A), (1, A))]),
    "what was read is another record": ("inconsistent offset", [assign(), poll((0, B)), ALL]),
    "an aborted record is there": ("aborted read", [txn("abort", X), final("tx", (0, X[2]))]),
    "an aborted record was read once": (
        "aborted read",
        [assign(), txn("abort", X), poll((0, X[2]), topic="tx"), final("tx")],
    ),
    "half of a transaction": ("torn transaction", [txn("unknown", X, Y), final("tx", (0, X[2])), final("tx", part=1)]),
    "half of one that was committed": (
        "torn transaction",
        [txn("commit", X, Y), final("tx"), final("tx", (0, Y[2]), part=1)],
    ),
    "records in the wrong order": ("nonmonotonic send", [final("plain", (0, B), (1, A))]),
    "an offset is read again": ("nonmonotonic poll", [assign(), poll((0, A), (1, B)), poll((1, B)), ALL]),
    "a record is left out": ("poll skip", [assign(), poll((0, A)), poll((2, C)), ALL]),
    "a record that was read is gone": ("phantom read", [assign(), poll((0, A), (1, B)), final("plain", (0, A))]),
    "a commit is forgotten": (
        "lost commit",
        [assign("c", 1, "g"), poll((0, A)), commit(1), assign("c", 2, "g"), poll((0, A), assignment=2), ALL],
    ),
    "the group goes on elsewhere": (
        "commit skip",
        [assign("c", 1, "g"), poll((0, A)), commit(1), assign("c", 2, "g"), poll((2, C), assignment=2), ALL],
    ),
    "a record was not copied": ("copied wrongly", [ALL, final("copy", (0, A), (1, B))]),
    "records were copied in another order": ("copied wrongly", [ALL, final("copy", (0, B), (1, A), (2, C))]),
    "a record was copied twice": ("copied wrongly", [ALL, final("copy", (0, A), (1, B), (2, B), (3, C))]),
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_said_of_good_histories(name: str) -> None:
    assert kinds(*GOOD[name]) == set()


@pytest.mark.parametrize("name", BAD)
def test_each_anomaly_is_found(name: str) -> None:
    kind, said = BAD[name]
    assert kind in kinds(*said)


def test_a_history_without_an_end_proves_nothing() -> None:
    with pytest.raises(AssertionError):
        kinds(ack(A, 0))
