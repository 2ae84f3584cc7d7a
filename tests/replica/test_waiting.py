"""Operations that wait are completed once: by what they wait for, or by time."""

from collections.abc import Callable

from ottla.replica.waiting import Completions, Operation, Timer, WaitingList, complete_or_wait


class Clock:
    """Time that passes when told to, with calls at their times."""

    def __init__(self) -> None:
        self.ms = 1000
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> None:
        self.calls.append((self.ms + delay * 1000, callback))

    def pass_time(self, ms: int) -> None:
        end = self.ms + ms
        while due := [call for call in self.calls if call[0] <= end]:
            first = min(due, key=lambda call: call[0])
            self.calls.remove(first)
            self.ms = max(self.ms, round(first[0]))
            first[1]()
        self.ms = end


class Thing(Operation):
    """Waits until it is ready."""

    __slots__ = ("looked", "outcome", "ready")

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


def test_what_can_be_completed_at_once_does_not_wait() -> None:
    clock, waiting, thing = Clock(), WaitingList(), Thing()
    thing.ready = True
    assert complete_or_wait(thing, [waiting], Timer(clock.call_later, lambda: clock.ms), 100)
    assert (thing.outcome, len(waiting), clock.calls) == ("done", 0, [])


def test_a_wake_up_completes_what_has_become_ready_and_leaves_the_rest() -> None:
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
            assert thing.outcome == "expired" if age > timeout + 10 else True
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


def test_entries_that_are_done_elsewhere_do_not_pile_up() -> None:
    clock, quiet, busy = Clock(), WaitingList(), WaitingList()
    timer = Timer(clock.call_later, lambda: clock.ms)
    for _ in range(10_000):
        thing = Thing()
        complete_or_wait(thing, [quiet, busy], timer, 100)
        thing.ready = True
        busy.wake()
    assert len(quiet.operations) <= 130


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


def test_what_becomes_due_while_lists_are_woken_is_woken_too() -> None:
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
