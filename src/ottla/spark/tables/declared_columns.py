"""Declared columns: those whose types the definition gives. Tables can be partitioned by them."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from ottla.spark.tables.evolution import INT64, is_allowed
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.record_columns import RESERVED, TIME

TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": TIME,
    "date": pa.date32(),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TypeMismatch(ValueError):
    """A value does not fit the type of its column."""


def declared_fields(columns: Mapping[str, str]) -> list[pa.Field]:
    """Return the fields of declared columns; raise TableError for an invalid name or type."""
    fields = []
    for name, kind in columns.items():
        if not is_allowed(name) or name.lower() in RESERVED:
            raise TableError(
                f"column {name!r}: the name is reserved or has characters that a format rejects; rename it"
            )
        if kind not in TYPES:
            raise TableError(f"column {name!r}: there is no type {kind!r}; use one of {', '.join(TYPES)}")
        fields.append(pa.field(name, TYPES[kind]))
    return fields


def is_text_in_json(kind: pa.DataType) -> bool:
    """Whether JSON lacks the type, so that values come as text or as milliseconds."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def parse_timestamp(value: Any) -> datetime:
    """Parse a timestamp: ISO 8601, in UTC if it names no zone, or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            timestamp = datetime.fromisoformat(value)
            return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int) and not isinstance(value, bool) and value in INT64:
            return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError) as error:
        raise TypeMismatch(str(error)) from None
    raise TypeMismatch("neither text nor milliseconds")


def parse_date(value: Any) -> date:
    """Parse a date in ISO 8601."""
    if not isinstance(value, str):
        raise TypeMismatch("not text")
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise TypeMismatch(str(error)) from None
