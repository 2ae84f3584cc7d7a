"""Checks every change of a connection's state in the tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.connection_state import LEGAL_TRANSITIONS, ConnectionState


class CheckedState:
    """Stands in for the slot of a connection's state, and records the changes that are not legal."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot
        self.illegal: list[tuple[ConnectionState, ConnectionState]] = []

    def __get__(self, connection: Connection | None, owner: type | None = None) -> Any:
        return self if connection is None else self._slot.__get__(connection, owner)

    def __set__(self, connection: Connection, state: ConnectionState) -> None:
        before = getattr(connection, "state", state)
        if state is not before and state not in LEGAL_TRANSITIONS[before]:
            self.illegal.append((before, state))
        self._slot.__set__(connection, state)


@pytest.fixture(autouse=True)
def checked_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a connection changed its state in a way that the table does not list."""
    checked = CheckedState(Connection.__dict__["state"])
    monkeypatch.setattr(Connection, "state", checked)
    yield
    assert not checked.illegal
