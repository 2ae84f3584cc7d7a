"""What a log needs from the place it lives in: a disk, a way to do slow work aside, and someone to tell of failures."""

from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from ottla.storage.disk import Disk, SystemDisk

T = TypeVar("T")


class Background(Protocol):
    """Runs slow work away from the thread that owns the logs."""

    def run(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
        """Do the work in a thread; then, in the owner's thread, call `done` with its result, or `failed`."""
        ...

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call the action in the owner's thread after a while."""
        ...


class InlineBackground:
    """Does everything at once, in the caller's thread: for tools, and for tests that want no threads."""

    def run(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
        try:
            result = work()
        except OSError as error:
            failed(error)
        else:
            done(result)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        action()


class LogEnvironment:
    """The surroundings of the logs in one log directory."""

    __slots__ = ("background", "disk", "on_failure", "random")

    def __init__(
        self,
        *,
        disk: Disk | None = None,
        background: Background | None = None,
        random: Random | None = None,
        on_failure: Callable[[OSError], None] | None = None,
    ) -> None:
        self.disk: Disk = disk or SystemDisk()
        self.background: Background = background or InlineBackground()
        self.random = random or Random()  # noqa: S311 (spreads rolling over time; guards nothing)
        self.on_failure = on_failure or _raise


def _raise(error: OSError) -> None:
    raise error
