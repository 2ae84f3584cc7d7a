"""What deciding gives: the records to write, and the reply once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append, then a reply to send. Nothing has changed yet."""

    records: Sequence[Any]
    reply: R
    atomic: bool = False
    """Whether the records must be one batch, so that they count all or not at all."""

    def without_records(self) -> Decision[R]:
        """The same reply to a request that only asks what would happen."""
        return replace(self, records=())
