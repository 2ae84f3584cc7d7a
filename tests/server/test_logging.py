"""Levels of loggers, as Kafka's BROKER_LOGGER resources have them."""

import io
import logging
from collections.abc import Iterator

import pytest

from ottla.errors import InvalidConfig, InvalidRequest
from ottla.server.logging import LEVELS, ROOT, TRACE, Loggers, set_up

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


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_that_was_set_is_told(level: str) -> None:
    logging.getLogger(NAME)
    loggers = Loggers()
    loggers.set_level(NAME, level)
    assert loggers.level(NAME) == level
    assert loggers.levels()[NAME] == level
    assert logging.getLogger(NAME).isEnabledFor(LEVELS[level])
    assert not logging.getLogger(NAME).isEnabledFor(LEVELS[level] - 1)


def test_levels_are_inherited_and_can_be_taken_back() -> None:
    logging.getLogger(NAME)
    loggers = Loggers()
    loggers.set_level(ROOT, "ERROR")
    assert loggers.level(NAME) == "ERROR"
    loggers.set_level("ottla.tests.some", "DEBUG")  # which does not log itself
    assert loggers.level(NAME) == "DEBUG"
    loggers.set_level(NAME, "TRACE")
    loggers.unset_level(NAME)
    assert loggers.level(NAME) == "DEBUG"
    loggers.unset_level("ottla.tests.some")
    assert loggers.level(NAME) == "ERROR"


def test_what_does_not_exist_is_refused() -> None:
    logging.getLogger(NAME)
    loggers = Loggers()
    for name, level in (("ottla.nowhere.at.all", "INFO"), (NAME, "LOUD"), (NAME, "info"), (NAME, None)):
        with pytest.raises(InvalidConfig):
            loggers.set_level(name, level)
    with pytest.raises(InvalidConfig):
        loggers.unset_level("ottla.nowhere.at.all")
    with pytest.raises(InvalidRequest):
        loggers.unset_level(ROOT)


def test_whoever_wants_to_know_is_told_of_changes() -> None:
    logging.getLogger(NAME)
    loggers = Loggers()
    told: list[str] = []
    loggers.on_change.append(lambda: told.append(loggers.level(NAME)))
    loggers.set_level(NAME, "DEBUG")
    loggers.set_level(NAME, "ERROR")
    assert told == ["DEBUG", "ERROR"]


def test_set_up_writes_to_the_stream_and_leaves_requests_out() -> None:
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
