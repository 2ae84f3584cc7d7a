"""What settings are made of: their types, how a text becomes a value of a type, and how a value is shown again.

Texts are read as Kafka reads them: blanks around are cut off, `TRUE` is true, `+5` is five, `a , b` is a list of two.
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
    """A secret that does not show itself in logs and error messages."""

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
    """A value that a setting cannot take; says what would be allowed."""


_BLANK: Final = "".join(map(chr, range(0x21)))  # what Java's trim cuts off
_BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
_integer = re.compile(r"[+-]?\d+").fullmatch
# Java also reads hexadecimal fractions, which nobody writes into a configuration.
_double = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))([fFdD]?)").fullmatch
_comma = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def trim(text: str) -> str:
    return text.strip(_BLANK)


def parse_value(kind: SettingType, text: str) -> Value:
    """The value that a text means; raises WrongValue."""
    return _PARSERS[kind](trim(text), kind)


def show_value(value: Value) -> str | None:
    """The text of a value as Kafka shows it to clients; a password is not hidden here."""
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
    # The length is checked first: Python refuses to read very long numbers, and with another exception.
    if _integer(text) is None or len(text.lstrip("+-0")) > 19 or not -limit <= int(text) < limit:
        raise InvalidValue(f"Not a number of type {kind}")
    return int(text)


def _parse_double(text: str, kind: SettingType) -> float:
    found = _double(text)
    if found is None or (found[2] and found[1].endswith(("NaN", "Infinity"))):
        raise InvalidValue(f"Not a number of type {kind}")
    return float(found[1])


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
    # Kafka loads the class. Here it is a name, and who uses the setting knows which names stand for something.
    SettingType.CLASS: _parse_text,
    SettingType.PASSWORD: _parse_password,
}


def _show_double(value: float) -> str:
    """As Java writes doubles: 0.5, 1.0E-5, 1.7976931348623157E308, NaN."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{value:.17e}".split("e")
    for precision in range(1, 18):  # the shortest that reads back as the same number
        digits, exponent = f"{value:.{precision}e}".split("e")
        if float(f"{digits}e{exponent}") == value:
            break
    return f"{digits}E{int(exponent)}"
