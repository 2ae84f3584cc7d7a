"""Share sessions: epochs, the partitions in responses, and the end of a connection."""

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


def test_a_session_advances_epoch_by_epoch() -> None:
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


def test_sessions_are_limited_and_a_new_one_replaces_the_members_old_one() -> None:
    sessions = ShareSessions()
    sessions.begin(A, [], "a", has_acks=False, slots=1)
    sessions.begin(A, [], "a", has_acks=False, slots=1)
    with pytest.raises(ShareSessionLimitReached):
        sessions.begin(B, [], "b", has_acks=False, slots=1)


def test_a_response_has_changed_partitions_in_turn() -> None:
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


def test_a_session_ends_with_its_connection() -> None:
    sessions = ShareSessions()
    sessions.begin(A, [], "first", has_acks=False, slots=2)
    sessions.begin(A, [], "second", has_acks=False, slots=2)
    sessions.begin(B, [], "other", has_acks=False, slots=2)
    assert sessions.on_disconnect("first") == (None, None), "the member has begun another session elsewhere"
    assert sessions.on_disconnect("unknown") == (None, None)
    assert sessions.on_disconnect("second") == (A, None)
    sessions.remove(A)
    assert sessions.on_disconnect("other") == (B, "g"), "nobody is left of the group"
