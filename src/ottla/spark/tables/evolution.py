"""Schema evolution: how the columns of a table follow the fields of its records. Pure.

- A new field becomes a column, and a new member of an object becomes a member of the struct.
- Integers become `double` when fractions appear. No other type changes: a value that does not fit is null in its column
  and stored, as JSON, in `_rescued`. So no value stops a table, and no value is lost.
- A value without a type (null, `[]`, `{}`) does not create a column.
- These create no columns, and their values are rescued: names that a format rejects, names that differ from another one
  only by case, columns beyond `MAX_COLUMNS` leaves, and objects deeper than `MAX_DEPTH`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from ottla.spark.tables.record_columns import RESERVED

MAX_COLUMNS: Final = 1_000
MAX_DEPTH: Final = 8
INT64: Final = range(-(2**63), 2**63)
NO_TYPE: Final = pa.null()
_ALLOWED: Final = re.compile(r"[^\s.,;{}()=\"`/\\\x00-\x1f]{1,200}")


def is_allowed(name: str) -> bool:
    """Whether every format accepts the name for a column."""
    return _ALLOWED.fullmatch(name) is not None and not name.isspace()


def infer_type(value: Any, depth: int = 0) -> pa.DataType:
    """Return the type of a JSON value, or `NO_TYPE` if it has none or cannot have a column."""
    match value:
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if value in INT64 else NO_TYPE
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict() if depth < MAX_DEPTH:
            fields = Fields()
            for name, member in value.items():
                if is_allowed(name) and (kind := infer_type(member, depth + 1)) != NO_TYPE:
                    fields.add(pa.field(name, kind))
            return _struct(fields)
        case list() if depth < MAX_DEPTH:
            element_type = NO_TYPE
            for element in value:
                element_type = merge_types(element_type, infer_type(element, depth + 1))
            return NO_TYPE if element_type == NO_TYPE else pa.list_(pa.field("element", element_type))
        case _:
            return NO_TYPE


def merge_types(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return a type for values of both types; if they are incompatible, the old one."""
    if new == NO_TYPE or old == new:
        return old
    if old == NO_TYPE:
        return new
    if pa.types.is_integer(old) and pa.types.is_floating(new):
        return pa.float64()
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _struct(merge_fields(list(old), list(new)))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", merge_types(old.value_type, new.value_type)))
    return old


class Fields:
    """A set of fields that grows: existing fields are widened, new ones are appended."""

    def __init__(self, fields: Iterable[pa.Field] = ()) -> None:
        self._by_name = {field.name: field for field in fields}
        self._lower_names = {name.lower() for name in self._by_name}

    def add(self, field: pa.Field) -> pa.Field | None:
        """Add a field and return its merged form, or None if its name differs from another one only by case."""
        old = self._by_name.get(field.name)
        if old is None and field.name.lower() in self._lower_names:
            return None
        self._lower_names.add(field.name.lower())
        merged = field if old is None else pa.field(field.name, merge_types(old.type, field.type))
        self._by_name[field.name] = merged
        return merged

    def restore(self, field: pa.Field) -> None:
        """Replace a field by its earlier form."""
        self._by_name[field.name] = field

    def remove(self, name: str) -> None:
        del self._by_name[name]
        self._lower_names.discard(name.lower())

    def get(self, name: str) -> pa.Field | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[pa.Field]:
        return iter(self._by_name.values())


def merge_fields(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> list[pa.Field]:
    """Merge the fields of two structs."""
    fields = Fields(old)
    for field in new:
        fields.add(field)
    return list(fields)


def extend_schema(schema: pa.Schema, new: Iterable[pa.Field], fixed: frozenset[str] = frozenset()) -> pa.Schema:
    """Add new fields to a table's columns. Columns in `fixed` and the record's own columns never change."""
    unchangeable = {name.lower() for name in RESERVED | fixed}
    fields = Fields(schema)
    size = sum(count_leaves(field.type) for field in schema)
    for field in new:
        if field.name.lower() in unchangeable or field.type == NO_TYPE:
            continue
        before = fields.get(field.name)
        after = fields.add(field)
        if after is None or after is before:
            continue
        extended_size = size + count_leaves(after.type) - (count_leaves(before.type) if before else 0)
        if extended_size <= MAX_COLUMNS:
            size = extended_size
        elif before is None:
            fields.remove(field.name)
        else:
            fields.restore(before)
    return pa.schema(list(fields))


def count_leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns that a type needs."""
    if pa.types.is_struct(kind):
        return sum(count_leaves(field.type) for field in kind)
    return count_leaves(kind.value_type) if pa.types.is_list(kind) else 1


def needs_rewrite(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether existing files cannot be read with the later type, because a type changed rather than appeared."""
    if before == after:
        return False
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        later = {field.name: field.type for field in after}
        return any(needs_rewrite(field.type, later[field.name]) for field in before)
    if pa.types.is_list(before) and pa.types.is_list(after):
        return needs_rewrite(before.value_type, after.value_type)
    return True


def _struct(fields: Iterable[pa.Field]) -> pa.DataType:
    typed = [field for field in fields if field.type != NO_TYPE]
    return pa.struct(typed) if typed else NO_TYPE
