"""Decide, append, apply, reply: a machine over a list, with a log that the test commits."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.protocol.errors import ApiError, InvalidRequest, NotController, RequestTimedOut, UnknownServerError
from ottla.storage.state_machine.decision import PARKED, Decision
from ottla.storage.state_machine.machine import Machine

State = tuple[str, ...]


class Written:
    """A machine whose state is all that was ever written, with its log."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.atomic: list[bool] = []
        self.ms = 0
        self.refusal: ApiError | None = None
        self.replies: list[Any] = []
        self.machine: Machine[State] = Machine(
            append=self._append, apply=self._apply, now_ms=lambda: self.ms, clock_ns=lambda: self.ms * 1_000_000
        )

    def activate(self) -> None:
        self.machine.activate(tuple(self.log), len(self.log) - 1)
        self.machine.committed(len(self.log) - 1)

    def submit(self, *records: str, reply: Any = "done", **how: Any) -> None:
        self.decide(lambda _: Decision(records, reply), **how)

    def decide(self, decide: Callable[[State], Decision[Any]], **how: Any) -> None:
        self.machine.submit("Write", decide, self.replies.append, **how)

    def commit(self) -> None:
        self.machine.committed(len(self.log) - 1)

    def _append(self, records: Sequence[Any], atomic: bool) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.log += records
        self.atomic.append(atomic)
        return len(self.log) - 1

    def _apply(self, state: State, records: Sequence[Any], last_offset: int) -> State:
        assert last_offset == len(self.log) - 1
        return (*state, *records)


@pytest.fixture
def written() -> Written:
    found = Written()
    found.activate()
    return found


def test_a_reply_waits_until_its_records_are_committed(written: Written) -> None:
    written.submit("a", "b")
    assert written.machine.state == ("a", "b")
    assert written.replies == []
    written.machine.committed(0)
    assert written.replies == []
    written.machine.committed(1)
    assert written.replies == ["done"]


def test_the_next_decision_sees_uncommitted_records(written: Written) -> None:
    written.submit("a")
    written.decide(lambda state: Decision((f"after {len(state)}",), None))
    assert written.log == ["a", "after 1"]


def test_a_reply_without_records_waits_for_earlier_records(written: Written) -> None:
    written.submit("a", reply="written")
    written.decide(lambda state: Decision((), f"saw {len(state)}"))
    assert written.replies == []
    written.commit()
    assert written.replies == ["written", "saw 1"]
    written.decide(lambda state: Decision((), f"saw {len(state)} again"))
    assert written.replies[-1] == "saw 1 again"


def test_replies_come_in_the_order_of_their_events(written: Written) -> None:
    for name in "abc":
        written.submit(name, reply=name)
    written.commit()
    assert written.replies == ["a", "b", "c"]


def test_a_refused_event_is_answered_at_once_and_changes_nothing(written: Written) -> None:
    def refuse(state: State) -> Decision[Any]:
        raise InvalidRequest("no")

    written.submit("a")
    written.decide(refuse)
    assert [str(each) for each in written.replies] == ["no"]
    assert written.log == ["a"]
    assert written.machine.stats["Write"].failed == 1
    assert written.machine.stats["Write"].count == 2


def test_a_bug_is_answered_and_the_machine_continues(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    written.decide(lambda state: Decision((), 1 // len(state)))
    assert isinstance(written.replies[0], UnknownServerError)
    assert "Write failed" in caplog.text
    written.submit("a")
    written.commit()
    assert written.replies[1] == "done"


def test_a_failed_append_is_answered_with_the_logs_error(written: Written) -> None:
    written.refusal = NotController("elsewhere")
    written.submit("a")
    assert isinstance(written.replies[0], NotController)
    assert written.machine.state == ()


def test_losing_leadership_fails_waiting_replies(written: Written) -> None:
    written.submit("a")
    written.submit("b")
    written.machine.deactivate(NotController("elsewhere"))
    assert [type(each) for each in written.replies] == [NotController, NotController]
    assert not written.machine.is_active
    written.commit()
    assert len(written.replies) == 2, "nobody is answered twice"


def test_a_machine_that_is_activated_again_starts_from_the_committed_state(written: Written) -> None:
    written.submit("kept")
    written.commit()
    written.submit("lost")
    written.machine.deactivate(NotController("elsewhere"))
    del written.log[1:]
    written.activate()
    assert written.machine.state == ("kept",)


def test_an_event_past_its_deadline_is_not_decided(written: Written) -> None:
    written.ms = 100
    written.submit("late", deadline_ms=100)
    assert isinstance(written.replies[0], RequestTimedOut)
    assert written.log == []
    written.submit("in time", deadline_ms=101)
    assert written.log == ["in time"]


def test_an_event_that_comes_up_during_another_waits_for_its_turn(written: Written) -> None:
    def decide(state: State) -> Decision[Any]:
        written.submit("inner", reply="inner")
        assert written.log == []
        return Decision(("outer",), "outer")

    written.decide(decide)
    assert written.log == ["outer", "inner"]


def test_an_urgent_event_goes_first(written: Written) -> None:
    def decide(state: State) -> Decision[Any]:
        written.submit("second")
        written.submit("first", first=True)
        return Decision((), None)

    written.decide(decide)
    assert written.log == ["first", "second"]


def test_nothing_is_decided_before_there_is_a_state() -> None:
    written = Written()
    written.submit("a")
    assert written.machine.queue_size == 1
    assert written.log == []
    written.activate()
    written.machine.run()
    assert written.log == ["a"]


def test_whether_records_belong_together_is_passed_on(written: Written) -> None:
    written.decide(lambda _: Decision(("a",), None, atomic=True))
    written.decide(lambda _: Decision(("b",), None))
    assert written.atomic == [True, False]


def test_a_dry_run_has_the_same_reply_and_no_records() -> None:
    decision = Decision(("a",), "reply", atomic=True).without_records()
    assert (decision.records, decision.reply, decision.atomic) == ((), "reply", True)


class Asked:
    """A ticket that remembers its outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []

    def answer(self, response: Any, /) -> None:
        self.outcomes.append(response)

    def fail(self, error: ApiError, /) -> None:
        self.outcomes.append(error)


def test_records_are_applied_to_the_unrecorded_changes(written: Written) -> None:
    written.decide(lambda state: Decision(("b",), "done", state=(*state, "a")))
    assert written.machine.state == ("a", "b")
    assert written.log == ["b"]


def test_nothing_changes_when_the_log_refuses(written: Written) -> None:
    written.refusal = NotController()
    ticket = Asked()
    written.decide(lambda state: Decision(("b",), "done", state=("a",), answers=[(ticket, "yes")]))
    assert written.machine.state == ()
    assert ticket.outcomes == []
    assert isinstance(written.replies[0], NotController)


def test_parked_requests_are_answered_with_the_commit(written: Written) -> None:
    ticket = Asked()
    written.decide(lambda _: Decision(("a",), "done", answers=[(ticket, "yes")]))
    assert ticket.outcomes == []
    written.commit()
    assert (written.replies, ticket.outcomes) == (["done"], ["yes"])


def test_a_reply_that_waits_too_long_fails_and_the_state_stays(written: Written) -> None:
    ticket = Asked()
    written.decide(lambda _: Decision(("a",), "done", answers=[(ticket, "yes")]))
    written.ms = 10
    written.submit("b")
    assert written.machine.oldest_waiting_ms() == 0
    written.machine.give_up(5, RequestTimedOut())
    assert [type(outcome) for outcome in (*written.replies, *ticket.outcomes)] == [RequestTimedOut, RequestTimedOut]
    assert written.machine.state == ("a", "b")
    written.commit()
    assert written.replies[1:] == ["done"]
    assert written.machine.oldest_waiting_ms() is None


def test_parked_requests_fail_when_the_machine_is_deactivated(written: Written) -> None:
    ticket = Asked()
    written.decide(lambda _: Decision(("a",), "done", answers=[(ticket, "yes")]))
    written.machine.deactivate(NotController())
    assert [type(outcome) for outcome in ticket.outcomes] == [NotController]


@pytest.mark.parametrize("how", ["given up", "deactivated"])
def test_a_parked_request_is_not_answered_by_the_record_of_its_parking(written: Written, how: str) -> None:
    """A parked request stays in the state when replies fail; the decision that removes it answers it."""
    ticket = Asked()
    written.submit("a")
    written.decide(lambda _: Decision((), PARKED))
    written.decide(lambda _: Decision((), "taken", answers=[(ticket, "yes")]))
    if how == "given up":
        written.machine.give_up(0, NotController())
    else:
        written.machine.deactivate(NotController())
    assert [type(reply) for reply in written.replies] == [NotController, NotController], "a, and who took the ticket"
    assert [type(outcome) for outcome in ticket.outcomes] == [NotController]
