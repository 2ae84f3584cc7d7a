"""What a kind of coordinator must say of itself, to be run on the partitions of its topic."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol, TypeVar

from ottla.metadata.image.changes import Changes
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Kinds

S = TypeVar("S")


class Behaviour(Protocol[S]):
    """A coordinator's rules. The state is immutable: an update gives another one."""

    topic: str
    """Where the state is kept."""
    kinds: Kinds
    """Its records."""

    def empty_state(self) -> S:
        """The state of an empty log."""
        ...

    def replay(self, state: S, entries: Iterable[Entry], now_ms: int, offset: int = -1) -> S:
        """The state after entries of one batch: the same for the coordinator that wrote them and for one that loads.

        `offset` is that of the first entry.
        """
        ...

    def on_loaded(self, state: S, now_ms: int) -> Decision[Any]:
        """What is to be done by one who takes over: as the first event, on a state that was loaded."""
        ...

    def on_timer(self, state: S, key: Hashable, now_ms: int) -> Decision[Any]:
        """A time that a decision set has come. The state may have changed since: look whether it still matters."""
        ...

    def on_metadata_changed(self, state: S, changes: Changes) -> Decision[Any] | None:
        """The cluster's metadata changed; None if that means nothing here."""
        ...

    def parked_tickets(self, state: S) -> Iterable[Ticket]:
        """The requests that wait in the state: they fail when it is given up."""
        ...
