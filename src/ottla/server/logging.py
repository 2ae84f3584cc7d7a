"""What is logged: where to, and from which level on for each logger, changeable while the node runs.

Kafka calls a logger a BROKER_LOGGER resource and its level a setting. The levels are Kafka's by name; TRACE lies below
Python's DEBUG, FATAL is CRITICAL. The root logger is called `root`. A logger without a level of its own has that of the
nearest one above it that has.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final, TextIO

from ottla.errors import InvalidConfig, InvalidRequest

TRACE: Final = 5
ROOT: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
REQUESTS: Final = "kafka.request.logger"


def set_up(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Log to a stream, by default standard error: what is wrong, or, if asked for, what the node does."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(REQUESTS).setLevel(logging.WARNING)  # not even a verbose node writes every request down


class Loggers:
    """The loggers of this process and their levels."""

    def __init__(self) -> None:
        logging.addLevelName(TRACE, "TRACE")
        self.on_change: list[Callable[[], None]] = []
        """Called when a level has changed, by those who do more than log."""

    def levels(self) -> dict[str, str]:
        """Every logger's level, its own or the one it inherits, by name."""
        return {name: self.level(name) for name in sorted(self._names())}

    def level(self, name: str) -> str:
        """A logger's level; raises InvalidConfig for one that does not exist."""
        number = self._logger(name).getEffectiveLevel()
        return next((word for word, least in LEVELS.items() if number >= least), "TRACE")

    def set_level(self, name: str, level: str | None) -> None:
        """Log from a level on, at once; raises InvalidConfig for what does not exist."""
        self.check(name, level)
        assert level is not None
        self._logger(name).setLevel(LEVELS[level])
        self._tell()

    def unset_level(self, name: str) -> None:
        """Let a logger have the level of the one above it."""
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        self._logger(name).setLevel(logging.NOTSET)
        self._tell()

    def check(self, name: str, level: str | None) -> None:
        """Raise InvalidConfig unless a logger can be given a level."""
        self._logger(name)
        if level not in LEVELS:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level."
                f" Valid log levels are {', '.join(LEVELS)}"
            )

    def _tell(self) -> None:
        for action in self.on_change:
            action()

    def _names(self) -> list[str]:
        """Also packages that do not log themselves: their level is that of what is in them."""
        return [ROOT, *logging.root.manager.loggerDict]

    def _logger(self, name: str) -> logging.Logger:
        if name == ROOT:
            return logging.getLogger()
        if name not in logging.root.manager.loggerDict:
            raise InvalidConfig(f"Logger {name} does not exist!")
        return logging.getLogger(name)
