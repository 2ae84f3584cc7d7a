"""The checks of settings' values, by the notation of the tables.

- `[1,...]`, `[0,...,1]`: a number in a range, ends included; `[1,...,9] or -1`: or one other number
- `[a, b]`: one of these words; `(case insensitive) [A, B]`: in any case. In a list, each item is one of these words
- `items`: a list without empty items; `id@host:port items`, `host:port items`: items of that form
- `non-empty` before any of these lists: the list must have items
- `non-empty string`, `non-null string` (any text), `any`
- two special forms: a duration of `by_duration`, and replicas as `partition:broker`

Lists of words and plain items drop duplicates, as in Kafka. The messages are Kafka's.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.config.settings.values import InvalidValue, SettingType, Value, trim

Check: TypeAlias = Callable[[Value], Value]
"""Returns the value, without duplicates if it is a list. Raises InvalidValue."""

_range = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?").fullmatch
_words = re.compile(r"(\(case insensitive\) |non-empty )?\[([\w, ]+)\]").fullmatch
_replica = re.compile(r"(?:[0-9]+:[0-9]+)?").fullmatch
_address = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)").fullmatch
_integer = re.compile(r"[+-]?\d{1,10}").fullmatch
_duration = re.compile(
    r"([-+]?)P(?=.)(?:([-+]?\d{1,19})D)?"
    r"(T(?=.)(?:([-+]?\d{1,19})H)?(?:([-+]?\d{1,19})M)?(?:([-+]?\d{1,19})(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
).fullmatch
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_OFFSET_RESETS = "[latest, earliest, by_duration:PnDTnHnMn.nS]"


@functools.cache
def check_of(kind: SettingType, allowed: str) -> Check:
    """Return the check for a notation of the tables."""
    if allowed in _NAMED:
        return _NAMED[allowed]
    if match := _range(allowed):
        return _range_check(kind, *match.groups())
    match = _words(allowed)
    assert match is not None, f"{allowed!r} is not the notation of a check"
    words = match[2].split(", ")
    if kind is SettingType.LIST:
        return _items_check(words, may_be_empty=match[1] is None)
    return _word_check(words, any_case=match[1] is not None)


def _range_check(kind: SettingType, lowest: str, highest: str | None, beside: str | None) -> Check:
    number = float if kind is SettingType.DOUBLE else int
    bottom, top = number(lowest), None if highest is None else number(highest)
    exception = None if beside is None else int(beside)

    def check(value: Value) -> Value:
        assert isinstance(value, int | float)
        if value == exception:
            return value
        if exception is not None and (value < bottom or (top is not None and value > top)):
            raise InvalidValue(f"Value must be between {lowest} and {highest} or equal to {beside}")
        if value < bottom:
            raise InvalidValue(f"Value must be at least {lowest}")
        if top is not None and value > top:
            raise InvalidValue(f"Value must be no more than {highest}")
        return value

    return check


def _word_check(words: Sequence[str], *, any_case: bool) -> Check:
    def check(value: Value) -> Value:
        assert isinstance(value, str)
        if (value.upper() if any_case else value) not in words:
            remark = " (case insensitive)" if any_case else ""
            raise InvalidValue(f"String must be one of{remark}: {', '.join(words)}")
        return value

    return check


def _items_check(words: Sequence[str] | None, *, may_be_empty: bool) -> Check:
    def check(value: Value) -> Value:
        assert isinstance(value, tuple)
        if not value and not may_be_empty:
            expected = f"[{', '.join(words)}]" if words else "any non-empty value"
            raise InvalidValue(f"List must not be empty. Valid values include: {expected}")
        for item in value:
            if not item:
                raise InvalidValue("List must not contain empty items")
            if words is not None and item not in words:
                raise InvalidValue(f"String must be one of: {', '.join(words)}")
        return tuple(dict.fromkeys(value))

    return check


def _check_nothing(value: Value) -> Value:
    return value


def _check_some_text(value: Value) -> Value:
    if value == "":
        raise InvalidValue("String must be non-empty")
    return value


def _check_replicas(value: Value) -> Value:
    assert isinstance(value, tuple)
    items = [trim(item) for item in value]
    if not all(map(_replica, items)) and "".join(items) != "*":
        raise InvalidValue(f"Expected the literal '*' or a list of replicas in the following format: {_REPLICAS}")
    return value


def _check_addresses(value: Value) -> Value:
    assert isinstance(value, tuple)
    for item in value:
        if not _is_address(item):
            raise InvalidValue(f"Each entry should be in the form {{host}}:{{port}}, which {item!r} is not")
    return value


def _check_voters(value: Value) -> Value:
    assert isinstance(value, tuple)
    for item in value:
        # Java drops empty parts at the end when it splits.
        parts = item.rstrip("@").split("@")
        if len(parts) != 2 or not _is_int(parts[0]) or not _is_address(parts[1]):
            raise InvalidValue(f"Each entry should be in the form {{id}}@{{host}}:{{port}}, which {item!r} is not")
    return value


def _check_offset_reset(value: Value) -> Value:
    assert isinstance(value, str)
    if value in ("latest", "earliest"):
        return value
    kind, _, duration = value.partition(":")
    match = _duration(duration)
    if kind != "by_duration" or match is None or not 0 <= _seconds(*match.groups(default="")) <= _LONG_MAX:
        raise InvalidValue(f"Expected one of {_OFFSET_RESETS}, with a duration that is not negative")
    return value


def _seconds(sign: str, days: str, _time: str, hours: str, minutes: str, seconds: str, fraction: str) -> float:
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    part = float(f"0.{fraction or 0}") * (-1 if seconds.startswith("-") else 1)
    total = whole + part if part else whole
    return -total if sign == "-" else total


def _is_address(text: str) -> bool:
    match = _address(text)
    return match is not None and len(match[2].lstrip("0")) <= 5 and int(match[2]) <= 65_535


def _is_int(text: str) -> bool:
    return _integer(text) is not None and -_INT_MAX - 1 <= int(text) <= _INT_MAX


_NAMED: dict[str, Check] = {
    "any": _check_nothing,
    "non-null string": _check_nothing,
    "non-empty string": _check_some_text,
    "items": _items_check(None, may_be_empty=True),
    "non-empty items": _items_check(None, may_be_empty=False),
    "host:port items": _check_addresses,
    "id@host:port items": _check_voters,
    _REPLICAS: _check_replicas,
    _OFFSET_RESETS: _check_offset_reset,
}
