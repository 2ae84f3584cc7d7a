"""Share sessions: epochs, what answers tell, and what ends with a connection."""

import pytest

from ottla.coordinators.share.sessions import FINAL_EPOCH, SessionKey, ShareSessions
from ottla.protocol.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

A, B = SessionKey("g", "a"), SessionKey("g", "b")
ONE, TWO = (b"t" * 16, 0), (b"t" * 16, 1)


def test_a_session_goes_on_epoch_by_epoch() -> None:
    sessions = ShareSessions()
    with pytest.raises(ShareSessionNotFound):
        sessions.find(A, 1)
    with pytest.raises(ShareSessionNotFound):
        sessions.find(A, FINAL_EPOCH)
    with pytest.raises(InvalidRequest):
        sessions.begin(A, [], "link", has_acks=True, slots=1)
    session = sessions.begin(A, [(ONE, "t")], "link", has_acks=False, slots=1)
    assert sessions.find(A, 1) is session
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.find(A, 2)
    session.advance_epoch()
    assert sessions.find(A, 2) is session
    assert sessions.find(A, FINAL_EPOCH) is session
    session.epoch = 2**31 - 1
    session.advance_epoch()
    assert session.epoch == 1


def test_there_is_room_for_so_many_and_a_new_one_takes_the_place_of_its_own() -> None:
    sessions = ShareSessions()
    sessions.begin(A, [], "a", has_acks=False, slots=1)
    sessions.begin(A, [], "a", has_acks=False, slots=1)
    with pytest.raises(ShareSessionLimitReached):
        sessions.begin(B, [], "b", has_acks=False, slots=1)


def test_an_answer_tells_what_is_new_and_takes_turns() -> None:
    session = ShareSessions().begin(A, [(ONE, "t")], "a", has_acks=False, slots=1)
    assert not session.must_report(ONE, has_records=False, has_error=False)
    session.update([(ONE, "t"), (TWO, "t")], [])
    assert session.must_report(TWO, has_records=False, has_error=False), "it is new"
    assert not session.must_report(TWO, has_records=False, has_error=False)
    assert session.must_report(ONE, has_records=True, has_error=False)
    assert list(session.partitions) == [TWO, ONE]
    assert session.must_report(TWO, has_records=False, has_error=True)
    assert session.must_report(TWO, has_records=False, has_error=False), "the error is over"
    session.update([], [ONE])
    assert list(session.partitions) == [TWO]


def test_a_session_ends_with_the_connection_that_it_was_begun_on() -> None:
    sessions = ShareSessions()
    sessions.begin(A, [], "first", has_acks=False, slots=2)
    sessions.begin(A, [], "second", has_acks=False, slots=2)
    sessions.begin(B, [], "other", has_acks=False, slots=2)
    assert sessions.on_disconnect("first") == (None, None), "the member has begun anew elsewhere"
    assert sessions.on_disconnect("unknown") == (None, None)
    assert sessions.on_disconnect("second") == (A, None)
    sessions.remove(A)
    assert sessions.on_disconnect("other") == (B, "g"), "nobody is left of the group"
