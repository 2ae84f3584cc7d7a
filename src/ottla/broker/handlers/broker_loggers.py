"""The log levels of a node as settings, by Kafka's names (KIP-412). A change lasts until the node stops.

`root` is Python's root logger. The other loggers belong to Ottla's modules and to the libraries that it uses.
"""

import logging
import re
from collections.abc import Sequence
from typing import Final, Protocol

from ottla.metadata.controller.configs import Operation
from ottla.protocol.errors import InvalidConfig, InvalidRequest

ROOT: Final = "root"
TRACE: Final = 5
"""Python has no level below DEBUG."""
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

_integer = re.compile(r"[+-]?[0-9]{1,10}").fullmatch


class Alteration(Protocol):
    """A change of one logger."""

    name: str
    config_operation: int
    value: str | None


def levels() -> dict[str, str]:
    """Return the effective level of every logger."""
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in (ROOT, *logging.root.manager.loggerDict)}


def alter_levels(node_id: int, resource: str, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Set levels, or let loggers inherit them again. Raises before it changes anything."""
    if parse_node_id(resource) != node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {node_id}, but received {resource}")
    for alteration in alterations:
        _check(alteration)
    if validate_only:
        return
    for alteration in alterations:
        level = logging.NOTSET if alteration.value is None else LEVELS[alteration.value]
        _logger(alteration.name).setLevel(level)


def parse_node_id(resource: str) -> int:
    """Return the id of the node that a resource names."""
    if not _integer(resource):
        raise InvalidRequest(f"Node id must be an integer, but it is: {resource}")
    return int(resource)


def _check(alteration: Alteration) -> None:
    try:
        operation = Operation(alteration.config_operation)
    except ValueError:
        raise InvalidRequest(f"Unknown operations type {alteration.config_operation}") from None
    if operation not in (Operation.SET, Operation.DELETE):
        raise InvalidRequest(f"{operation.name} operation is not allowed for the BROKER_LOGGER resource")
    name = alteration.name
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise InvalidConfig(f"Logger {name} does not exist!")
    if operation is Operation.DELETE:
        alteration.value = None
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif alteration.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {alteration.value} as it is not a supported log level."
            f" Valid log levels are {', '.join(sorted(LEVELS))}"
        )


def _logger(name: str) -> logging.Logger:
    """Return a logger, also for a package whose modules log but which does not log itself."""
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")
