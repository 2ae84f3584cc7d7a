"""Retries: deadlines, backoff, and which errors are transient."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.protocol.errors import (
    ApiError,
    ElectionError,
    InconsistentTopicId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    by_code,
)

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_FINAL: Final = (UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId, ElectionError)


class Deadline:
    """The time until which retries are allowed."""

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(self._end - time.monotonic(), 0.0)

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self._end


def backoff_s(attempt: int) -> float:
    """Return the backoff after a number of attempts: it doubles with each, and jitter spreads many clients."""
    return min(_FIRST_WAIT_S * 2.0 ** min(attempt, 10), _LONGEST_WAIT_S) * random.uniform(0.8, 1.2)  # noqa: S311


def is_transient(error: ApiError) -> bool:
    """Return whether a retry is likely to succeed.

    Kafka calls an unknown topic retriable, because a broker may learn of it later. Here it is not, so that a mistyped
    name fails at once.
    """
    return error.retriable and not isinstance(error, _FINAL)


async def retry(
    attempt: Callable[[], Awaitable[T]], *, timeout_s: float, should_retry: Callable[[ApiError], bool] = is_transient
) -> T:
    """Return the result of `attempt`, retrying after transient errors. Raise its last error at the time limit."""
    deadline = Deadline(timeout_s)
    attempts = 0
    while True:
        try:
            return await attempt()
        except ApiError as error:
            pause_s = backoff_s(attempts)
            if not should_retry(error) or pause_s > deadline.left_s:
                raise
        attempts += 1
        await asyncio.sleep(pause_s)


def error_from_code(code: int, message: str | None, where: str) -> ApiError:
    """Return the error of an error code, with its location and the broker's message."""
    error = by_code(code)
    return error(f"{where}: {message or error().message}")


def add_location(error: ApiError, where: str) -> ApiError:
    """Return the error with its location."""
    return error if error.message.startswith(where) else type(error)(f"{where}: {error.message}")


def raise_for_code(code: int, message: str | None, where: str) -> None:
    """Raise the error of an error code. Return if the code means success."""
    if code:
        raise error_from_code(code, message, where)
