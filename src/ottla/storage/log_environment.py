"""What a log needs from its surroundings: a disk, a background for slow work, and a callback for failures."""

from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from ottla.storage.disk import Disk, SystemDisk

T = TypeVar("T")


class Background(Protocol):
    """Runs slow work outside of the thread that owns the logs."""

    def run(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
        """Run the work in a thread; then, in the owner's thread, call `done` with its result, or `failed`."""
        ...

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call the action in the owner's thread after a delay."""
        ...


class InlineBackground:
    """Runs everything immediately in the caller's thread: for tools and tests."""

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
    """The environment of the logs in one log directory."""

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
        self.random = random or Random()  # noqa: S311 (only spreads rolling over time)
        self.on_failure = on_failure or _raise


def _raise(error: OSError) -> None:
    raise error
