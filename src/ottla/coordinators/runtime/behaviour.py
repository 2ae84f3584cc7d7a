"""The interface between the runtime and the rules of one kind of coordinator."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol, TypeVar

from ottla.metadata.image.changes import Changes
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Kinds

S = TypeVar("S")


class Behaviour(Protocol[S]):
    """The rules of a kind of coordinator. Its state is immutable: a change returns a new one."""

    topic: str
    """The internal topic that stores the state."""
    kinds: Kinds
    """The key and value classes of its records."""

    def empty_state(self) -> S:
        """Return the state of an empty log."""
        ...

    def replay(self, state: S, entries: Iterable[Entry], now_ms: int, offset: int = -1) -> S:
        """Return the state after the entries of one batch, for the coordinator that wrote them and for one that loads.

        `offset` is that of the first entry.
        """
        ...

    def on_loaded(self, state: S, now_ms: int) -> Decision[Any]:
        """Decide the first event after loading: timers, and work that the previous coordinator left."""
        ...

    def on_timer(self, state: S, key: Hashable, now_ms: int) -> Decision[Any]:
        """Decide what to do when a timer expires. The state may have changed since the timer was set."""
        ...

    def on_metadata_changed(self, state: S, changes: Changes) -> Decision[Any] | None:
        """Decide what to do after a metadata change; None if it has no effect."""
        ...

    def parked_tickets(self, state: S) -> Iterable[Ticket]:
        """Return the tickets of the requests parked in the state, which fail when the shard closes."""
        ...
