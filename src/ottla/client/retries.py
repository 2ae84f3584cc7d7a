"""Trying again: until when, how soon, and after which errors."""

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
    """A moment until which something may be tried again."""

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
    """How long to wait after so many attempts: twice as long each time, and never the same for many clients at once."""
    return min(_FIRST_WAIT_S * 2.0 ** min(attempt, 10), _LONGEST_WAIT_S) * random.uniform(0.8, 1.2)  # noqa: S311


def is_transient(error: ApiError) -> bool:
    """Whether an error is likely to go away by itself.

    Kafka calls an unknown topic retriable, because a broker may yet hear of it; who mistyped a name should not wait.
    """
    return error.retriable and not isinstance(error, _FINAL)


async def retry(
    attempt: Callable[[], Awaitable[T]], *, timeout_s: float, should_retry: Callable[[ApiError], bool] = is_transient
) -> T:
    """What `attempt` returns once it succeeds; raises its last error when that stays, or when the time is up."""
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
    """The error of a wire code, with what it is about and what the broker had to say."""
    kind = by_code(code)
    return kind(f"{where}: {message or kind().message}")


def add_location(error: ApiError, where: str) -> ApiError:
    """The same error, with what it is about."""
    return error if error.message.startswith(where) else type(error)(f"{where}: {error.message}")


def raise_for_code(code: int, message: str | None, where: str) -> None:
    """Raise the error of a wire code, unless it says that all went well."""
    if code:
        raise error_from_code(code, message, where)
