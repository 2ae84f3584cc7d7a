"""The columns that every table has, whatever its records hold: where a row comes from, and what did not fit.

_key        the record's key, as text or as bytes
_partition  where the record is in its topic
_offset
_timestamp  the record's time
_deleted    whether it is a tombstone (only in append mode: upsert takes the row away)
_rescued    values that do not fit their columns, as JSON by path

A table that keeps values as they came has one more, `value`, and that is all.
"""

from typing import Final

import pyarrow as pa

KEY: Final = "_key"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
DELETED: Final = "_deleted"
RESCUED: Final = "_rescued"
VALUE: Final = "value"

TIME: Final = pa.timestamp("us", tz="UTC")
KEY_TYPES: Final = {"string": pa.string(), "binary": pa.binary()}

DEAD_LETTERS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("error", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""The side table of records that can be no row, bytes as they came."""


def record_fields(key: str) -> list[pa.Field]:
    """The first columns of a table whose keys are "string" or "binary"."""
    return [
        pa.field(KEY, KEY_TYPES[key]),
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, TIME),
        pa.field(DELETED, pa.bool_()),
        pa.field(RESCUED, pa.string()),
    ]


RESERVED: Final = frozenset(field.name for field in record_fields("string"))


def value_fields(schema: pa.Schema) -> list[pa.Field]:
    """The columns that come from the records' values."""
    return [field for field in schema if field.name not in RESERVED]
