"""Parsers for the values of options."""

import json
import re
from typing import Any


class OptionError(ValueError):
    """An option that is missing, unknown or has an invalid value."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"option {name}: {problem}")


def parse_number(name: str, text: str, *, least: int | None = None) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", text.strip()):
        raise OptionError(name, f"{text!r} is not a whole number")
    number = int(text)
    if least is not None and number < least:
        raise OptionError(name, f"{number} is too small: it must be at least {least}")
    return number


def parse_boolean(name: str, text: str) -> bool:
    return parse_choice(name, text, ("true", "false")) == "true"


def parse_choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    chosen = text.strip().lower()
    if chosen not in allowed:
        raise OptionError(name, f"{text!r} is not allowed; use one of {', '.join(allowed)}")
    return chosen


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(name: str, text: str) -> float:
    """Parse a duration with its unit, as Spark writes it: 15m, 30s, 500ms. A number without a unit is milliseconds."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not match or (match[2] or "ms") not in _UNITS_S:
        raise OptionError(name, f"{text!r} is not a duration such as 30s or 15m")
    return int(match[1]) * _UNITS_S[match[2] or "ms"]


def parse_by_partition(name: str, text: str) -> dict[str, dict[int, int]]:
    """Parse numbers by topic and partition: {"orders": {"0": 23, "1": -2}}."""
    form = '{"topic": {"0": 23, "1": -2}}'
    topics = _parse_json(name, text, form)
    if not isinstance(topics, dict):
        raise OptionError(name, f"{text!r} does not have the form {form}")
    parsed: dict[str, dict[int, int]] = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, dict):
            raise OptionError(name, f'topic {topic!r}: {numbers!r} is not an object by partition, such as {{"0": 23}}')
        parsed[topic] = {}
        for partition, number in numbers.items():
            if not partition.isdecimal():
                raise OptionError(name, f"topic {topic!r}: {partition!r} is not the number of a partition")
            if not isinstance(number, int) or isinstance(number, bool):
                raise OptionError(name, f"topic {topic!r}, partition {partition}: {number!r} is not a whole number")
            parsed[topic][int(partition)] = number
    return parsed


def parse_assignment(name: str, text: str) -> dict[str, list[int]]:
    """Parse partitions by topic: {"orders": [0, 1]}."""
    form = '{"topic": [0, 1]}'
    topics = _parse_json(name, text, form)
    if not isinstance(topics, dict) or not topics:
        raise OptionError(name, f"{text!r} does not have the form {form}")
    for topic, partitions in topics.items():
        if not isinstance(partitions, list) or not all(type(number) is int and number >= 0 for number in partitions):
            raise OptionError(name, f"topic {topic!r}: {partitions!r} is not a list of partitions, as in {form}")
    return {topic: sorted(set(partitions)) for topic, partitions in topics.items()}


def _parse_json(name: str, text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(name, f"{text!r} is not JSON of the form {form}: {error}") from None
