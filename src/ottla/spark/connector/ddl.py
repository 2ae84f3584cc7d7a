"""Parses Spark's DDL schemas without Spark: `id long, tags array<string>, at timestamp`.

Spark's own parser is in the JVM, which a Python worker cannot call.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PLAIN: Final[Mapping[str, DataType]] = {
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "decimal": DecimalType(10, 0),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_WORD: Final = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|'(?:[^'\\]|\\.)*'|[<>(),:])")


class InvalidDdl(ValueError):
    """A text is not a schema."""


def parse_columns(text: str) -> StructType:
    """Parse columns and their types; raise InvalidDdl."""
    parser = _Parser(text)
    columns = parser.fields(end=None)
    if not columns.fields:
        raise InvalidDdl("it names no column")
    return columns


class _Parser:
    """A recursive-descent parser over the words of a schema."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        position = 0
        while text[position:].strip():
            match = _WORD.match(text, position)
            if match is None:
                raise InvalidDdl(f"unexpected {text[position:].strip()[:10]!r}")
            self._words.append(match[1])
            position = match.end()
        self._next = 0

    def fields(self, end: str | None) -> StructType:
        fields: list[StructField] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._name()
            if self._peek() == ":":
                self._take()
            kind = self.type()
            nullable = not self._skip("not", "null")
            if self._skip("comment"):
                self._take()
            fields.append(StructField(name, kind, nullable))
        return StructType(fields)

    def type(self) -> DataType:
        word = self._take().lower()
        if word == "array":
            self._expect("<")
            inner = self.type()
            self._expect(">")
            return ArrayType(inner)
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return MapType(key, value)
        if word == "struct":
            self._expect("<")
            struct = self.fields(end=">")
            self._expect(">")
            return struct
        if word in ("decimal", "numeric", "dec") and self._peek() == "(":
            return self._decimal()
        if word not in _PLAIN:
            raise InvalidDdl(f"{word!r} is not a type")
        return _PLAIN[word]

    def _decimal(self) -> DataType:
        self._expect("(")
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._take()
            scale = self._number()
        self._expect(")")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._take()
        if not word.isdecimal():
            raise InvalidDdl(f"{word!r} is not a number")
        return int(word)

    def _name(self) -> str:
        word = self._take()
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", word):
            raise InvalidDdl(f"{word!r} is not a column name")
        return word

    def _skip(self, *words: str) -> bool:
        """Consume these words if they are next; return whether they were."""
        ahead = [word.lower() for word in self._words[self._next : self._next + len(words)]]
        if ahead != list(words):
            return False
        self._next += len(words)
        return True

    def _peek(self) -> str | None:
        return self._words[self._next] if self._next < len(self._words) else None

    def _take(self) -> str:
        word = self._peek()
        if word is None:
            raise InvalidDdl("unexpected end")
        self._next += 1
        return word

    def _expect(self, wanted: str) -> None:
        word = self._take()
        if word != wanted:
            raise InvalidDdl(f"expected {wanted!r} instead of {word!r}")
