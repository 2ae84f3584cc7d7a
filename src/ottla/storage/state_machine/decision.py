"""What deciding gives: the records to write, and the reply once they are committed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.protocol.errors import ApiError

R = TypeVar("R")


class Ticket(Protocol):
    """A request that waits; exactly one of the two is called, once."""

    def answer(self, response: Any, /) -> None: ...

    def fail(self, error: ApiError, /) -> None: ...


class Parked:
    """The reply to a request whose ticket went into the state: a later decision answers it."""


PARKED: Final = Parked()


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append, then a reply to send. Nothing has changed yet."""

    records: Sequence[Any]
    reply: R
    atomic: bool = False
    """Whether the records must be one batch, so that they count all or not at all."""
    state: Any = None
    """The state with what changes unrecorded, if anything does; the records are applied on top of it."""
    answers: Sequence[tuple[Ticket, Any]] = ()
    """Answers to requests that were parked; they go out with the reply."""
    timers: Sequence[tuple[Hashable, int | None]] = ()
    """When something is to be looked at again, by its key: at a time in ms, or never."""

    def without_records(self) -> Decision[R]:
        """The same reply to a request that only asks what would happen."""
        return replace(self, records=())
