"""The end of a producer's transaction, in the offsets that it committed."""

from __future__ import annotations

from ottla.coordinators.groups.state import GroupsState
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Marker


def complete_transaction(state: GroupsState, marker: Marker) -> Decision[None]:
    """Write a transaction's marker: its offsets then count, or are gone."""
    return Decision([marker], None)
