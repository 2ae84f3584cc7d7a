"""How the columns of a table follow what the records hold. Pure.

- A field that was not there before becomes a column; a member of an object, a member of the struct.
- Whole numbers become `double` when fractions come. Nothing else changes its type: a value that does not fit is null in
  its column and kept, as JSON, in `_rescued`. So no value stops a table, and none is lost.
- What says nothing of its type (null, `[]`, `{}`) makes no column yet.
- Names that a format cannot hold, names that differ from a known one only by case, more than `MAX_COLUMNS` leaves and
  objects deeper than `MAX_DEPTH` make no columns: their values are rescued, too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from ottla.spark.tables.record_columns import RESERVED

MAX_COLUMNS: Final = 1_000
MAX_DEPTH: Final = 8
INT64: Final = range(-(2**63), 2**63)
NOTHING: Final = pa.null()
_ALLOWED: Final = re.compile(r"[^\s.,;{}()=\"`/\\\x00-\x1f]{1,200}")


def is_allowed(name: str) -> bool:
    """Whether a field's name can be a column's, in every format."""
    return _ALLOWED.fullmatch(name) is not None and not name.isspace()


def type_of(value: Any, depth: int = 0) -> pa.DataType:
    """The type of a JSON value; `NOTHING` where it says nothing, or cannot have a column."""
    match value:
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if value in INT64 else NOTHING
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict() if depth < MAX_DEPTH:
            fields = Fields()
            for name, each in value.items():
                if is_allowed(name) and (found := type_of(each, depth + 1)) != NOTHING:
                    fields.add(pa.field(name, found))
            return _struct(fields)
        case list() if depth < MAX_DEPTH:
            element = NOTHING
            for each in value:
                element = merged(element, type_of(each, depth + 1))
            return NOTHING if element == NOTHING else pa.list_(pa.field("element", element))
        case _:
            return NOTHING


def merged(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type that holds both as far as it goes; where they do not go together, what is known stays."""
    if found == NOTHING or known == found:
        return known
    if known == NOTHING:
        return found
    if pa.types.is_integer(known) and pa.types.is_floating(found):
        return pa.float64()
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return _struct(merged_fields(list(known), list(found)))
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(pa.field("element", merged(known.value_type, found.value_type)))
    return known


class Fields:
    """Fields as they come together: the known ones, as wide as need be, and behind them those that are new."""

    def __init__(self, known: Iterable[pa.Field] = ()) -> None:
        self._by_name = {field.name: field for field in known}
        self._taken = {name.lower() for name in self._by_name}

    def add(self, found: pa.Field) -> pa.Field | None:
        """Take in a field; what it has become, or None if its name is taken by one of another case."""
        known = self._by_name.get(found.name)
        if known is None and found.name.lower() in self._taken:
            return None
        self._taken.add(found.name.lower())
        field = found if known is None else pa.field(found.name, merged(known.type, found.type))
        self._by_name[found.name] = field
        return field

    def put(self, field: pa.Field) -> None:
        """Set one back."""
        self._by_name[field.name] = field

    def remove(self, name: str) -> None:
        del self._by_name[name]
        self._taken.discard(name.lower())

    def get(self, name: str) -> pa.Field | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[pa.Field]:
        return iter(self._by_name.values())


def merged_fields(known: Iterable[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields of two structs as those of one."""
    fields = Fields(known)
    for field in found:
        fields.add(field)
    return list(fields)


def extended(schema: pa.Schema, found: Iterable[pa.Field], fixed: frozenset[str] = frozenset()) -> pa.Schema:
    """A table's columns with what records were found to hold; `fixed` ones, and the record's own, never change."""
    kept = {name.lower() for name in RESERVED | fixed}
    fields = Fields(schema)
    size = sum(leaves(field.type) for field in schema)
    for field in found:
        if field.name.lower() in kept or field.type == NOTHING:
            continue
        before = fields.get(field.name)
        after = fields.add(field)
        if after is None or after is before:
            continue
        grown = size + leaves(after.type) - (leaves(before.type) if before else 0)
        if grown <= MAX_COLUMNS:
            size = grown
        elif before is None:
            fields.remove(field.name)
        else:
            fields.put(before)
    return pa.schema(list(fields))


def leaves(found: pa.DataType) -> int:
    """How many columns of a file a type takes."""
    if pa.types.is_struct(found):
        return sum(leaves(field.type) for field in found)
    return leaves(found.value_type) if pa.types.is_list(found) else 1


def needs_rewrite(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether files written before cannot be read under the later type: a type has changed, not only come."""
    if before == after:
        return False
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        later = {field.name: field.type for field in after}
        return any(needs_rewrite(field.type, later[field.name]) for field in before)
    if pa.types.is_list(before) and pa.types.is_list(after):
        return needs_rewrite(before.value_type, after.value_type)
    return True


def _struct(fields: Iterable[pa.Field]) -> pa.DataType:
    found = [field for field in fields if field.type != NOTHING]
    return pa.struct(found) if found else NOTHING
