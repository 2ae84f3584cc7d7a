"""The table of a connection's states. `conftest.py` checks that connections keep to it."""

from ottla.broker.network.connection_state import CLOSED, CLOSING, LEGAL_TRANSITIONS, READING, ConnectionState


def test_every_state_can_be_reached_and_closed() -> None:
    reached = {READING}
    while following := {after for state in reached for after in LEGAL_TRANSITIONS[state]} - reached:
        reached |= following
    assert reached == set(ConnectionState)
    assert all(CLOSED in following for state, following in LEGAL_TRANSITIONS.items() if state is not CLOSED)


def test_a_connection_that_is_closing_or_closed_never_reads_again() -> None:
    assert LEGAL_TRANSITIONS[CLOSING] == {CLOSED}
    assert not LEGAL_TRANSITIONS[CLOSED]
