"""The result of an event: the records to append, and the reply once they are committed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.protocol.errors import ApiError

R = TypeVar("R")


class Ticket(Protocol):
    """A waiting request; exactly one of the methods is called, once."""

    def answer(self, response: Any, /) -> None: ...

    def fail(self, error: ApiError, /) -> None: ...


class Parked:
    """The reply to a request whose ticket is in the state, for a later decision to answer."""


PARKED: Final = Parked()


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append, and a reply to send after that. Deciding changes nothing itself."""

    records: Sequence[Any]
    reply: R
    atomic: bool = False
    """Whether the records must be in one batch, so that all or none of them count."""
    state: Any = None
    """A state with changes that are not recorded, if any; the records are applied to it."""
    answers: Sequence[tuple[Ticket, Any]] = ()
    """Answers to parked requests, which are sent with the reply."""
    timers: Sequence[tuple[Hashable, int | None]] = ()
    """Timers by key: the time in ms, or None to cancel."""

    def without_records(self) -> Decision[R]:
        """Return the same decision without records, for a request that only validates."""
        return replace(self, records=())
