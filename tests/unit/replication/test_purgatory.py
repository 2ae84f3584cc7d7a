"""Waiting operations complete once: after a change, or at their deadline."""

import gc
import weakref

import pytest

from ottla.replication.purgatory import Completions, Expirations, Operation, Timer, WaitingList, complete_or_wait
from tests.support.clock import Clock


class Thing(Operation):
    """Waits until it is ready."""

    __slots__ = ("__weakref__", "looked", "outcome", "ready")

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.outcome = ""
        self.looked = 0

    def try_complete(self) -> bool:
        self.looked += 1
        if self.ready:
            assert not self.outcome
            self.outcome = "done"
        return self.ready

    def expire(self) -> None:
        assert not self.outcome
        self.outcome = "expired"


def test_an_operation_that_can_complete_does_not_wait() -> None:
    clock, waiting, thing = Clock(), WaitingList(), Thing()
    thing.ready = True
    assert complete_or_wait(thing, [waiting], Timer(clock.call_later, lambda: clock.ms), 100)
    assert (thing.outcome, len(waiting), clock.calls) == ("done", 0, [])


def test_a_wake_up_completes_only_operations_that_are_ready() -> None:
    clock, first, second = Clock(), WaitingList(), WaitingList()
    timer = Timer(clock.call_later, lambda: clock.ms)
    things = [Thing() for _ in range(3)]
    for thing in things:
        assert not complete_or_wait(thing, [first, second], timer, 100)
    things[1].ready = True
    assert first.wake() == 1
    assert [thing.outcome for thing in things] == ["", "done", ""]
    assert second.wake() == 0
    assert things[1].looked == 2
    clock.pass_time(500)
    assert [thing.outcome for thing in things] == ["expired", "done", "expired"]
    assert first.wake() == 0


def test_nothing_expires_before_its_time_and_nothing_much_after() -> None:
    clock = Clock()
    timer = Timer(clock.call_later, lambda: clock.ms)
    things = {timeout: Thing() for timeout in (0, 1, 9, 10, 11, 50, 499, 500, 30_000)}
    for timeout, thing in things.items():
        timer.add(thing, timeout)
    start = clock.ms
    while clock.ms < start + 31_000:
        clock.pass_time(1)
        for timeout, thing in things.items():
            age = clock.ms - start
            assert thing.outcome == "expired" if age > timeout * 1.01 + 10 else True
            assert thing.outcome == "" if age <= timeout else True
    assert len(timer) == 0


def test_an_earlier_deadline_that_comes_later_is_not_missed() -> None:
    clock = Clock()
    timer = Timer(clock.call_later, lambda: clock.ms)
    late, early = Thing(), Thing()
    timer.add(late, 10_000)
    timer.add(early, 100)
    clock.pass_time(120)
    assert (late.outcome, early.outcome) == ("", "expired")
    clock.pass_time(10_000)
    assert late.outcome == "expired"


def test_a_finished_operation_is_kept_by_no_list_and_no_timer() -> None:
    clock, quiet, busy = Clock(), WaitingList(), WaitingList()
    timer = Timer(clock.call_later, lambda: clock.ms)
    finished = []
    for _ in range(100):
        thing = Thing()
        complete_or_wait(thing, [quiet, busy], timer, 3_600_000)
        thing.ready = True
        busy.wake()
        finished.append(weakref.ref(thing))
    del thing
    gc.collect()
    assert [each() for each in finished] == [None] * 100
    assert (len(quiet), len(busy), len(timer)) == (0, 0, 0)


def test_an_operation_at_its_deadline_leaves_its_lists() -> None:
    clock, first, second = Clock(), WaitingList(), WaitingList()
    timer = Timer(clock.call_later, lambda: clock.ms)
    complete_or_wait(Thing(), [first, second], timer, 100)
    clock.pass_time(150)
    assert (len(first), len(second), len(timer)) == (0, 0, 0)


def test_deadlines_far_away_take_little_room_and_one_call_of_the_loop() -> None:
    clock = Clock()
    timer = Timer(clock.call_later, lambda: clock.ms)
    for number in range(20_000):
        thing = Thing()
        timer.add(thing, 3_600_000)
        timer.add(Thing(), 20)
        thing.finish()
        clock.pass_time(10)
        assert len(clock.calls) == 1, f"after {number} deadlines"
    assert len(timer._slots) < 1000


def test_a_shorter_time_counts_and_a_longer_one_does_not() -> None:
    clock = Clock()
    timer = Timer(clock.call_later, lambda: clock.ms)
    early, late = Thing(), Thing()
    for thing in (early, late):
        timer.add(thing, 500 if thing is early else 5)
        timer.hasten(thing, 20)
    clock.pass_time(16)
    assert (early.outcome, late.outcome) == ("", "expired")
    clock.pass_time(20)
    assert early.outcome == "expired"


def test_a_failure_at_a_deadline_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Thing):
        def expire(self) -> None:
            raise ValueError("broken")

    clock, later = Clock(), Thing()
    timer = Timer(clock.call_later, lambda: clock.ms)
    things = [Broken(), Thing()]
    for thing in things:
        timer.add(thing, 100)
    timer.add(later, 200)
    clock.pass_time(300)
    assert (things[1].outcome, later.outcome) == ("expired", "expired")
    assert "failed to complete" in caplog.text
    caplog.clear()


def test_lists_are_woken_after_the_step_and_only_where_someone_waits() -> None:
    completions, waiting, empty = Completions(), WaitingList(), WaitingList()
    thing = Thing()
    waiting.add(thing)
    thing.ready = True
    completions.add(waiting)
    completions.add(empty)
    assert thing.outcome == ""
    completions.run()
    assert thing.outcome == "done"


def test_lists_added_while_waking_are_woken_too() -> None:
    completions, first, second = Completions(), WaitingList(), WaitingList()
    last = Thing()
    last.ready = True
    second.add(last)

    class Chain(Thing):
        def try_complete(self) -> bool:
            completions.add(second)
            completions.run()  # a nested step must not run ahead
            assert last.outcome == ""
            return super().try_complete()

    chain = Chain()
    chain.ready = True
    first.add(chain)
    completions.add(first)
    completions.run()
    assert (chain.outcome, last.outcome) == ("done", "done")


def test_late_produces_of_deleted_topics_are_forgotten() -> None:
    """Also where nobody asks for metrics, which looks for them too."""
    expirations = Expirations()
    for partition in (0, 2):
        expirations.count_produce("gone", partition)
    expirations.count_produce("stays", 0)
    expirations.forget("gone", 3)
    assert dict(expirations.produces_by_partition(lambda topic, partition: True)) == {("stays", 0): 1}
    assert expirations.produces == 3
