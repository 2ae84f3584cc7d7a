"""The checker reports every anomaly, and none in correct histories."""

from typing import Any

import pytest

from tests.chaos.soak.checker import check

KindAndFields = tuple[str, dict[str, Any]]


def final(topic: str = "plain", *records: tuple[int, str], part: int = 0) -> KindAndFields:
    return "final", {"who": "end", "topic": topic, "p": part, "r": [list(record) for record in records]}


def ack(name: str, offset: int | None, topic: str = "plain") -> KindAndFields:
    return "ack", {"who": name.split("/")[0], "topic": topic, "p": 0, "o": offset, "v": name}


def poll(*records: tuple[int, str], topic: str = "plain", who: str = "c", assignment: int = 1) -> KindAndFields:
    return "poll", {"who": who, "a": assignment, "topic": topic, "p": 0, "r": [list(record) for record in records]}


def assign(who: str = "c", assignment: int = 1, group: str | None = None) -> KindAndFields:
    membership = {"group": group} if group else {}
    return "assign", {"who": who, "a": assignment, "topic": "plain", "p": [0], **membership}


def commit(offset: int, *, ok: bool = True) -> KindAndFields:
    return "commit", {"who": "c", "b": 0, "group": "g", "topic": "plain", "offsets": {"0": offset}, "ok": ok}


def txn(end: str, *records: tuple[str, int, str], number: int = 1) -> KindAndFields:
    return "txn", {"who": "t", "n": number, "values": [list(record) for record in records], "end": end}


def check_events(*events: KindAndFields) -> set[str]:
    """Return the kinds of anomalies in a history with these events in order."""
    history = [{"e": kind, "t": time, **fields} for time, (kind, fields) in enumerate(events)]
    return {anomaly.kind for anomaly in check(history)}


A, B, C = "w/0/0", "w/0/1", "w/0/2"
ALL = final("plain", (0, A), (1, B), (2, C))
X, Y = ("tx", 0, "t/1/0"), ("tx", 1, "t/1/1")

GOOD: dict[str, list[KindAndFields]] = {
    "all records exist": [ack(A, 0), ack(B, 1), assign(), poll((0, A), (1, B)), poll((2, C)), ALL],
    "records may be acknowledged without an offset": [ack(A, None), ack(B, None), ALL],
    "a record without a response may be missing": [ack(A, 0), final("plain", (0, A))],
    "the gap of a marker is not a skip": [
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
    "a failed commit may have been stored": [
        assign("c", 1, "g"),
        poll((0, A), (1, B)),
        commit(2, ok=False),
        assign("c", 2, "g"),
        poll((2, C), assignment=2),
        ALL,
    ],
    "a producer that gave up a record may write duplicates": [
        ("fail", {"who": "w", "topic": "plain", "p": 0, "v": C, "why": "time"}),
        final("plain", (0, B), (1, A), (2, B)),
        final("copy", (0, B), (3, A), (4, B)),
    ],
    "a producer that bumped its epoch may write duplicates": [
        ("epoch", {"who": "w", "why": "skipped sequence numbers"}),
        ack(A, 1),
        final("plain", (0, A), (1, A)),
        final("copy", (0, A), (3, A)),
    ],
    "a complete transaction": [txn("commit", X, Y), final("tx", (0, X[2])), final("tx", (0, Y[2]), part=1)],
    "an aborted transaction without records": [txn("abort", X, Y), final("tx"), final("tx", part=1)],
    "a transaction with an unknown outcome that was committed": [
        txn("unknown", X, Y),
        final("tx", (0, X[2])),
        final("tx", (0, Y[2]), part=1),
    ],
}

BAD: dict[str, tuple[str, list[KindAndFields]]] = {
    "a record that was acknowledged without an offset is gone": ("lost write", [ack("w/0/9", None), ALL]),
    "an acknowledged record is gone": ("lost write", [ack(A, 0), ack(B, 1), final("plain", (0, A))]),
    "a record is at another offset": ("lost write", [ack(A, 3), final("plain", (0, A))]),
    "a committed transaction is gone": ("lost write", [txn("commit", X, Y), final("tx"), final("tx", part=1)]),
    "a record exists twice": ("duplicate", [ack(A, 0), final("plain", (0, A), (1, A))]),
    "another record was read at an offset": ("inconsistent offset", [assign(), poll((0, B)), ALL]),
    "an aborted record exists": ("aborted read", [txn("abort", X), final("tx", (0, X[2]))]),
    "an aborted record was read once": (
        "aborted read",
        [assign(), txn("abort", X), poll((0, X[2]), topic="tx"), final("tx")],
    ),
    "half of a transaction": ("torn transaction", [txn("unknown", X, Y), final("tx", (0, X[2])), final("tx", part=1)]),
    "half of a committed transaction": (
        "torn transaction",
        [txn("commit", X, Y), final("tx"), final("tx", (0, Y[2]), part=1)],
    ),
    "records in the wrong order": ("nonmonotonic send", [final("plain", (0, B), (1, A))]),
    "an offset is read again": ("nonmonotonic poll", [assign(), poll((0, A), (1, B)), poll((1, B)), ALL]),
    "a record is skipped": ("poll skip", [assign(), poll((0, A)), poll((2, C)), ALL]),
    "a record that was read is gone": ("phantom read", [assign(), poll((0, A), (1, B)), final("plain", (0, A))]),
    "a commit is forgotten": (
        "lost commit",
        [assign("c", 1, "g"), poll((0, A)), commit(1), assign("c", 2, "g"), poll((0, A), assignment=2), ALL],
    ),
    "the group continues at another offset": (
        "commit skip",
        [assign("c", 1, "g"), poll((0, A)), commit(1), assign("c", 2, "g"), poll((2, C), assignment=2), ALL],
    ),
    "a record was not copied": ("copied wrongly", [ALL, final("copy", (0, A), (1, B))]),
    "records were copied in another order": ("copied wrongly", [ALL, final("copy", (0, B), (1, A), (2, C))]),
    "a record was copied twice": ("copied wrongly", [ALL, final("copy", (0, A), (1, B), (2, B), (3, C))]),
}


@pytest.mark.parametrize("name", GOOD)
def test_correct_histories_have_no_anomalies(name: str) -> None:
    assert check_events(*GOOD[name]) == set()


@pytest.mark.parametrize("name", BAD)
def test_anomalies_are_detected(name: str) -> None:
    kind, events = BAD[name]
    assert kind in check_events(*events)


def test_a_history_without_final_contents_is_rejected() -> None:
    with pytest.raises(AssertionError):
        check_events(ack(A, 0))
