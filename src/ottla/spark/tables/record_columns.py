"""The columns that every table has: where a row comes from, and the values that do not fit their columns.

_key        the record's key, as text or bytes
_partition  the record's partition
_offset     the record's offset
_timestamp  the record's timestamp
_deleted    whether the record is a tombstone (only in append mode; in upsert mode it deletes the row)
_rescued    values that do not fit their columns, as JSON by path

A table with values stored as bytes has only one more column, `value`.
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
"""The columns of the dead-letter table, for records that cannot become rows; key and value are the original bytes."""


def record_fields(key: str) -> list[pa.Field]:
    """Return the first columns of a table whose keys are "string" or "binary"."""
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
    """Return the columns that come from record values."""
    return [field for field in schema if field.name not in RESERVED]
