"""Requests that several coordinators answer together: the answer is sent when the last part is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ottla.broker.requests.call import LATER, Later
from ottla.protocol.errors import ApiError

P = TypeVar("P")


class Gathering(Generic[P]):
    """Collects the parts of an answer, in the order of the request."""

    def __init__(self, size: int, finish: Callable[[Sequence[P]], None]) -> None:
        self._parts: list[P | None] = [None] * size
        self._missing = size
        self._finish = finish

    def part(self, number: int, failed: Callable[[ApiError], P]) -> Part[P]:
        """Return the ticket for one part. `failed` builds the part from an error."""
        return Part(self, number, failed)

    def take(self, number: int, part: P) -> None:
        """Add a part, and finish the answer if it is the last one."""
        assert self._parts[number] is None, "each part is added once"
        self._parts[number] = part
        self._missing -= 1
        if not self._missing:
            self._finish([part for part in self._parts if part is not None])

    def all_requested(self) -> Later:
        """Call this when all parts were requested: an answer without parts is then complete."""
        if not self._parts:
            self._finish(())
        return LATER


class Part(Generic[P]):
    """A ticket for one part of an answer."""

    __slots__ = ("_failed", "_number", "_whole")

    def __init__(self, whole: Gathering[P], number: int, failed: Callable[[ApiError], P]) -> None:
        self._whole = whole
        self._number = number
        self._failed = failed

    def answer(self, response: Any, /) -> None:
        self._whole.take(self._number, response)

    def fail(self, error: ApiError, /) -> None:
        self._whole.take(self._number, self._failed(error))
