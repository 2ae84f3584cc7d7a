"""Logger levels, as Kafka's BROKER_LOGGER resources have them."""

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ottla.broker.handlers.broker_loggers import LEVELS, ROOT, TRACE, alter_levels, levels
from ottla.metadata.controller.configs import Operation
from ottla.node.logging import set_up
from ottla.protocol.errors import InvalidConfig, InvalidRequest

NAME = "ottla.tests.some.logger"


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    logging.getLogger(NAME).setLevel(logging.NOTSET)


@dataclass
class Change:
    name: str
    value: str | None
    config_operation: int = Operation.SET


def alter(name: str, value: str | None) -> None:
    change = Change(name, value, Operation.DELETE if value is None else Operation.SET)
    alter_levels(1, "1", [change], validate_only=False)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_that_was_set_is_described(level: str) -> None:
    logging.getLogger(NAME)
    alter(NAME, level)
    assert levels()[NAME] == level
    assert logging.getLogger(NAME).isEnabledFor(LEVELS[level])
    assert not logging.getLogger(NAME).isEnabledFor(LEVELS[level] - 1)


def test_levels_are_inherited_and_can_be_reset() -> None:
    logging.getLogger(NAME)
    alter(ROOT, "ERROR")
    assert levels()[NAME] == "ERROR"
    alter("ottla.tests.some", "DEBUG")  # which does not log itself
    assert levels()[NAME] == "DEBUG"
    alter(NAME, "TRACE")
    alter(NAME, None)
    assert levels()[NAME] == "DEBUG"
    alter("ottla.tests.some", None)
    assert levels()[NAME] == "ERROR"


def test_what_does_not_exist_is_refused() -> None:
    logging.getLogger(NAME)
    for name, level in (("ottla.nowhere.at.all", "INFO"), (NAME, "LOUD"), (NAME, "info"), ("ottla.nowhere", None)):
        with pytest.raises(InvalidConfig):
            alter(name, level)
    with pytest.raises(InvalidRequest):
        alter(ROOT, None)


def test_set_up_does_not_log_requests() -> None:
    stream = io.StringIO()
    set_up(verbose=True, stream=stream)
    logging.getLogger("kafka.request.logger").info("a request")
    logging.getLogger(NAME).info("news")
    logging.getLogger(NAME).debug("details")
    logging.getLogger(NAME).setLevel(TRACE)
    logging.getLogger(NAME).log(TRACE, "more details")
    text = stream.getvalue()
    assert "INFO ottla.tests.some.logger: news" in text
    assert "TRACE ottla.tests.some.logger: more details" in text
    assert "a request" not in text
    assert text.count("\n") == 2
