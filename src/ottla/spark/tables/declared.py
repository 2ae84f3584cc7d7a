"""Columns that a table's maker names, with their types: besides the record's own, files can be laid out by these."""

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


class Misfit(ValueError):
    """A value is none of its column's type."""


def declared_fields(columns: Mapping[str, str]) -> list[pa.Field]:
    """The declared columns; raises TableError for a name or a type that cannot be."""
    fields = []
    for name, kind in columns.items():
        if not is_allowed(name) or name.lower() in RESERVED:
            raise TableError(f"column {name!r}: no column can have this name")
        if kind not in TYPES:
            raise TableError(f"column {name!r}: there is no type {kind!r}; there are {', '.join(TYPES)}")
        fields.append(pa.field(name, TYPES[kind]))
    return fields


def is_written_as_text(kind: pa.DataType) -> bool:
    """Whether JSON has no such type: it comes as text, or as milliseconds."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def moment(value: Any) -> datetime:
    """A timestamp: ISO 8601, in UTC where it names no zone, or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int) and not isinstance(value, bool) and value in INT64:
            return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError) as error:
        raise Misfit(str(error)) from None
    raise Misfit("neither text nor milliseconds")


def day(value: Any) -> date:
    """A date: ISO 8601."""
    if not isinstance(value, str):
        raise Misfit("not a text")
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise Misfit(str(error)) from None
