"""Requests that several coordinators have a part in: answered when the last of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ottla.broker.requests.call import LATER, Later
from ottla.protocol.errors import ApiError

P = TypeVar("P")


class Gathering(Generic[P]):
    """The parts of an answer, in the order in which they were asked for."""

    def __init__(self, size: int, finish: Callable[[Sequence[P]], None]) -> None:
        self._parts: list[P | None] = [None] * size
        self._missing = size
        self._finish = finish

    def part(self, number: int, failed: Callable[[ApiError], P]) -> Part[P]:
        """The ticket of one part; its failure is a part, too."""
        return Part(self, number, failed)

    def take(self, number: int, part: P) -> None:
        """A part has come."""
        assert self._parts[number] is None, "a part comes once"
        self._parts[number] = part
        self._missing -= 1
        if not self._missing:
            self._finish([each for each in self._parts if each is not None])

    def begun(self) -> Later:
        """All parts were asked for; if there are none, the answer is complete."""
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
