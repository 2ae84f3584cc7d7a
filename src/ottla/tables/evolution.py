"""How the columns of a table follow what the records hold. Pure.

- A field that was not there before becomes a column; a member of an object, a member of the struct.
- Whole numbers become `double` when fractions come. Nothing else changes its type: a value that does not fit is null in
  its column and kept, as JSON, in `_rescued`. So no value stops a table, and none is lost.
- What says nothing of its type (null, `[]`, `{}`) makes no column yet.
- Names that a format cannot hold, names that differ from a known one only by case, more than `MAX_COLUMNS` leaves and
  objects deeper than `MAX_DEPTH` make no columns: their values are rescued, too.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from ottla.tables.record_columns import RESERVED

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
            members = [(name, type_of(each, depth + 1)) for name, each in value.items() if is_allowed(name)]
            return _struct(pa.field(name, found) for name, found in _one_case(members))
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


def merged_fields(known: list[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    """The known fields, as wide as need be, and behind them those that are new."""
    by_name = {field.name: field for field in known}
    taken = {name.lower() for name in by_name}
    for field in found:
        name = field.name
        if name in by_name:
            by_name[name] = pa.field(name, merged(by_name[name].type, field.type))
        elif name.lower() not in taken:
            by_name[name] = field
            taken.add(name.lower())
    return list(by_name.values())


def extended(schema: pa.Schema, found: Iterable[pa.Field], fixed: frozenset[str] = frozenset()) -> pa.Schema:
    """A table's columns with what records were found to hold; `fixed` ones, and the record's own, never change."""
    kept = RESERVED | fixed
    lowered = {name.lower() for name in kept}
    usable = [field for field in found if field.name.lower() not in lowered and field.type != NOTHING]
    fields = list(schema)
    for field in usable:
        candidate = merged_fields(fields, [field])
        if sum(leaves(each.type) for each in candidate) <= MAX_COLUMNS:
            fields = candidate
    return pa.schema(fields)


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


def _one_case(members: list[tuple[str, pa.DataType]]) -> list[tuple[str, pa.DataType]]:
    """Of names that differ by case only, the first."""
    first: dict[str, tuple[str, pa.DataType]] = {}
    for name, found in members:
        first.setdefault(name.lower(), (name, found))
    return list(first.values())


def _struct(fields: Iterable[pa.Field]) -> pa.DataType:
    found = [field for field in fields if field.type != NOTHING]
    return pa.struct(found) if found else NOTHING
