"""The types of settings: how texts are parsed, and how values are formatted.

Texts are parsed as in Kafka: surrounding blanks are removed, `TRUE` is true, `+5` is five, `a , b` is a list of two.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias


class SettingType(StrEnum):
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    SHORT = "SHORT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


class Password:
    """A secret, which logs and error messages do not show."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Password | None


class InvalidValue(Exception):
    """A value that a setting does not allow. The message says what it allows."""


_BLANK: Final = "".join(map(chr, range(0x21)))  # the characters that Java's trim removes
_BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
_integer = re.compile(r"[+-]?\d+").fullmatch
# Java also parses hexadecimal fractions, which are not supported here.
_double = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))([fFdD]?)").fullmatch
_comma = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def trim(text: str) -> str:
    return text.strip(_BLANK)


def parse_value(kind: SettingType, text: str) -> Value:
    """Parse a text. Raise InvalidValue."""
    return _PARSERS[kind](trim(text), kind)


def show_value(value: Value) -> str | None:
    """Format a value as Kafka shows it to clients. Passwords are not hidden."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _show_double(value)
        case tuple():
            return ",".join(value)
        case Password():
            return value.value
        case _:
            return str(value)


def _parse_boolean(text: str, _: SettingType) -> bool:
    match text.upper():
        case "TRUE":
            return True
        case "FALSE":
            return False
        case _:
            raise InvalidValue("Expected value to be either true or false")


def _parse_integer(text: str, kind: SettingType) -> int:
    limit = 1 << (_BITS[kind] - 1)
    # Check the length first: for very long numbers, Python raises another exception.
    if _integer(text) is None or len(text.lstrip("+-0")) > 19 or not -limit <= int(text) < limit:
        raise InvalidValue(f"Not a number of type {kind}")
    return int(text)


def _parse_double(text: str, kind: SettingType) -> float:
    match = _double(text)
    if match is None or (match[2] and match[1].endswith(("NaN", "Infinity"))):
        raise InvalidValue(f"Not a number of type {kind}")
    return float(match[1])


def _parse_list(text: str, _: SettingType) -> tuple[str, ...]:
    return tuple(_comma.split(text)) if text else ()


def _parse_text(text: str, _: SettingType) -> str:
    return text


def _parse_password(text: str, _: SettingType) -> Password:
    return Password(text)


_PARSERS: Final[dict[SettingType, Callable[[str, SettingType], Value]]] = {
    SettingType.BOOLEAN: _parse_boolean,
    SettingType.INT: _parse_integer,
    SettingType.LONG: _parse_integer,
    SettingType.SHORT: _parse_integer,
    SettingType.DOUBLE: _parse_double,
    SettingType.STRING: _parse_text,
    SettingType.LIST: _parse_list,
    # Kafka loads the class. Here it is a name; the code that uses the setting knows the supported names.
    SettingType.CLASS: _parse_text,
    SettingType.PASSWORD: _parse_password,
}


def _show_double(value: float) -> str:
    """Format a double as Java does: 0.5, 1.0E-5, 1.7976931348623157E308, NaN."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{value:.17e}".split("e")
    for precision in range(1, 18):  # the shortest text that parses to the same number
        digits, exponent = f"{value:.{precision}e}".split("e")
        if float(f"{digits}e{exponent}") == value:
            break
    return f"{digits}E{int(exponent)}"
