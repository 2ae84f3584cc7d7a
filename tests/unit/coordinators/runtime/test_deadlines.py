"""Deadlines are due in order, replaced by key, and bounded in number however often they are set."""

import random

from ottla.coordinators.runtime.deadlines import Deadlines


def test_due_keys_are_removed_earliest_first() -> None:
    deadlines = Deadlines()
    for key, at_ms in (("c", 30), ("a", 10), ("b", 20), ("d", 40)):
        deadlines.set(key, at_ms)
    assert deadlines.next_ms() == 10
    assert list(deadlines.due(30)) == ["a", "b", "c"]
    assert deadlines.next_ms() == 40
    assert list(deadlines.due(39)) == []


def test_setting_a_key_again_replaces_its_deadline() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    deadlines.set("b", 20)
    deadlines.set("b", None)
    assert deadlines.next_ms() == 30
    assert list(deadlines.due(20)) == []
    assert list(deadlines.due(30)) == ["a"]
    assert deadlines.next_ms() is None


def test_a_key_may_be_set_while_due_keys_are_removed() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 10)
    taken = []
    for key in deadlines.due(25):
        taken.append(key)
        if len(taken) < 4:
            deadlines.set(key, 10 + 5 * len(taken))
    assert taken == ["a", "a", "a", "a"]


def test_setting_one_key_repeatedly_does_not_grow_the_heap() -> None:
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.set("a", at_ms)
    assert len(deadlines._heap) <= 64
    assert list(deadlines.due(10_000)) == ["a"]


def test_removed_keys_leave_little_memory() -> None:
    """Each of a coordinator's 50 partitions has its own deadlines."""
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set(number, 600_000)
        deadlines.set(number, None)
    assert len(deadlines) == 0
    assert len(deadlines._heap) <= 64


def test_against_a_plain_dict() -> None:
    chance = random.Random(7)
    deadlines, model = Deadlines(), dict[int, int]()
    now_ms = 0
    for _ in range(20_000):
        key = chance.randrange(200)
        if chance.random() < 0.1:
            deadlines.set(key, None)
            model.pop(key, None)
        else:
            at_ms = now_ms + chance.randrange(1, 500)
            deadlines.set(key, at_ms)
            model[key] = at_ms
        if chance.random() < 0.05:
            now_ms += chance.randrange(100)
            due = [key for key in deadlines.due(now_ms) if isinstance(key, int)]
            assert sorted(due) == sorted(key for key, at_ms in model.items() if at_ms <= now_ms)
            assert [model[key] for key in due] == sorted(model[key] for key in due)
            for key in due:
                del model[key]
        assert len(deadlines) == len(model)
        assert deadlines.next_ms() == min(model.values(), default=None)
