"""The loggers of a node as a resource with settings: their levels, by Kafka's names (KIP-412). They last until the
node ends.

`root` is the logger above all; the others are those of this program's modules and of the libraries it uses.
"""

import logging
import re
from collections.abc import Sequence
from typing import Final, Protocol

from ottla.metadata.controller.configs import Operation
from ottla.protocol.errors import InvalidConfig, InvalidRequest

ROOT: Final = "root"
TRACE: Final = 5
"""Python knows nothing below DEBUG."""
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
    """What is to be done to one logger."""

    name: str
    config_operation: int
    value: str | None


def levels() -> dict[str, str]:
    """Every logger with the level in force."""
    return {name: _shown(_logger(name).getEffectiveLevel()) for name in (ROOT, *logging.root.manager.loggerDict)}


def alter_levels(node_id: int, resource: str, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Set levels, or let loggers have the level of those above them again; raises before anything is changed."""
    if parse_node_id(resource) != node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {node_id}, but received {resource}")
    for each in alterations:
        _check(each)
    if validate_only:
        return
    for each in alterations:
        _logger(each.name).setLevel(logging.NOTSET if each.value is None else LEVELS[each.value])


def parse_node_id(resource: str) -> int:
    """The node that a resource is named after."""
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
    """Also that of a package which does not log itself: its level is that of what is in it."""
    return logging.root if name == ROOT else logging.getLogger(name)


def _shown(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")
