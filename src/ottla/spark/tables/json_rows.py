"""Reads JSON objects in record values into columns: by Arrow's reader, or one by one if it cannot read them.

Both ways give the same result. Arrow's reader reads a whole batch and stops at the first irregular value. Then each
half is read by itself, and so on, until few values are left. These are read one by one: values that are not objects
become dead letters, and values that do not fit their column are rescued.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from ottla.spark.tables.declared_columns import TypeMismatch, is_text_in_json, parse_date, parse_timestamp
from ottla.spark.tables.evolution import INT64, MAX_DEPTH, NO_TYPE, Fields, extend_schema, infer_type, is_allowed
from ottla.spark.tables.record_columns import value_fields

_WRAPPED: Final = "v"
_FEW: Final = 64


class ParsedValues(NamedTuple):
    """The rows of a batch of values, the rescued values as JSON, and the errors by row."""

    rows: pa.StructArray | None
    """One row per value, null if it has an error; None if the table lacks columns for the values."""
    rescued: pa.Array
    errors: dict[int, str]
    wanted: pa.Schema
    """The schema that the table needs for all values."""


def read_values(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> ParsedValues:
    """Read values, without nulls, as rows of the schema's value columns. Columns in `fixed` keep their types."""
    parsed = read_by_arrow(values, schema, fixed)
    if parsed is not None:
        return parsed
    if len(values) <= _FEW:
        return read_one_by_one(values, schema, fixed)
    middle = len(values) // 2
    first = read_values(values[:middle], schema, fixed)
    # The second half is read with the columns of the first, which saves reading it one by one. If the first half needs
    # more columns than the schema has, the whole batch is read again anyway.
    second = read_values(values[middle:], first.wanted, fixed)
    return ParsedValues(
        rows=pa.concat_arrays([first.rows, second.rows])
        if first.rows is not None and second.rows is not None
        else None,
        rescued=pa.concat_arrays([first.rescued, second.rescued]),
        errors={**first.errors, **{middle + row: error for row, error in second.errors.items()}},
        wanted=second.wanted,
    )


def read_by_arrow(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> ParsedValues | None:
    """Read values by Arrow's reader; return None if any of them is irregular."""
    columns = value_fields(schema)
    parsed = _parse(values, [pa.field(f.name, pa.string()) if is_text_in_json(f.type) else f for f in columns])
    if parsed is None:
        return None
    rescued = pa.nulls(len(values), pa.string())
    try:
        new_fields = _new_fields(pa.struct(columns), parsed.type, 0)
        wanted = extend_schema(schema, new_fields, fixed)
        if wanted != schema:
            return ParsedValues(None, rescued, {}, wanted)
        if new_fields:
            return None
        members = [
            _convert_text(_drop_untyped(pc.struct_field(parsed, [column.name]), column.type), column.type)
            for column in columns
        ]
    except TypeMismatch:
        return None
    rows = pa.StructArray.from_arrays(members, fields=columns) if columns else _without_columns(len(values))
    return ParsedValues(rows, rescued, {}, schema)


def _parse(values: pa.Array, fields: list[pa.Field]) -> pa.StructArray | None:
    if not len(values):
        return None
    try:
        text = pc.binary_join_element_wise('{"v":', values.cast(pa.string()), "}\n", "").buffers()[2]
        table = arrow_json.read_json(
            pa.BufferReader(text),
            arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema([(_WRAPPED, pa.struct(fields))]),
                newlines_in_values=True,
                unexpected_field_behavior="infer",
            ),
        )
        # Arrow 26 returns inconsistent lists if they have nothing but nulls.
        table.validate()
    except pa.ArrowInvalid:
        return None
    # Each value gives at least one object, so equal counts mean that each value gives exactly one.
    if table.num_rows != len(values) or table.column_names != [_WRAPPED]:
        return None
    objects: pa.StructArray = pa.concat_arrays(table.column(0).chunks)
    return None if objects.null_count else objects


def _new_fields(old: pa.DataType, parsed: pa.DataType, depth: int) -> list[pa.Field]:
    """Return the fields that the old struct lacks; raise TypeMismatch if values must be read one by one to decide."""
    types = {field.name: field.type for field in old}
    new = []
    for field in parsed:
        if field.name not in types:
            if (kind := _column_type(field.type, depth + 1)) != NO_TYPE:
                if not is_allowed(field.name):
                    raise TypeMismatch(field.name)
                new.append(pa.field(field.name, kind))
        elif inner := _new_inner_fields(types[field.name], field.type, depth + 1):
            new.append(pa.field(field.name, inner))
    return new


def _new_inner_fields(old: pa.DataType, parsed: pa.DataType, depth: int) -> pa.DataType | None:
    if pa.types.is_struct(old):
        members = _new_fields(old, parsed, depth)
        return pa.struct(members) if members else None
    if pa.types.is_list(old):
        element = _new_inner_fields(old.value_type, parsed.value_type, depth + 1)
        return pa.list_(pa.field("element", element)) if element else None
    return None


def _column_type(kind: pa.DataType, depth: int) -> pa.DataType:
    """Return the type of a new column. Floats are ambiguous: Arrow reads NaN and large integers as floats, too."""
    if pa.types.is_floating(kind) or depth > MAX_DEPTH:
        raise TypeMismatch("ambiguous type")
    if pa.types.is_struct(kind):
        members = [(field.name, _column_type(field.type, depth + 1)) for field in kind]
        typed = [pa.field(name, member) for name, member in members if member != NO_TYPE]
        if not all(is_allowed(field.name) for field in typed) or len({f.name.lower() for f in typed}) < len(typed):
            raise TypeMismatch("invalid name")
        return pa.struct(typed) if typed else NO_TYPE
    if pa.types.is_list(kind):
        element = _column_type(kind.value_type, depth + 1)
        return NO_TYPE if element == NO_TYPE else pa.list_(pa.field("element", element))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _drop_untyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array without members that have no type; raise TypeMismatch for numbers that JSON does not have."""
    if pa.types.is_struct(kind):
        names = {field.name for field in array.type}
        members = [
            _drop_untyped(array.field(f.name), f.type) if f.name in names else pa.nulls(len(array), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        items = _drop_untyped(array.flatten(), kind.value_type)
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        return pa.ListArray.from_arrays(ends, items, kind, mask=array.is_null())
    if pa.types.is_floating(kind) and not (pc.all(pc.is_finite(array), min_count=0).as_py()):
        raise TypeMismatch("not a JSON number")
    return array


def _convert_text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not is_text_in_json(kind):
        return array
    parse: Callable[[Any], Any] = parse_timestamp if pa.types.is_timestamp(kind) else parse_date
    encoded = array.dictionary_encode()
    return pa.array([parse(text) for text in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


def _without_columns(count: int) -> pa.StructArray:
    return pa.array([{}] * count, pa.struct([]))


def read_one_by_one(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> ParsedValues:
    """Read any values one by one. This defines the result that `read_by_arrow` must equal."""
    objects, errors = _parse_objects(values)
    new_fields, seen = Fields(), set()
    for value in objects:
        if value is not None and (inferred := infer_type(value)) not in seen:
            seen.add(inferred)
            for field in () if inferred == NO_TYPE else inferred:
                new_fields.add(field)
    wanted = extend_schema(schema, new_fields, fixed)
    if wanted != schema:
        return ParsedValues(None, pa.nulls(len(values), pa.string()), errors, wanted)
    kind = pa.struct(value_fields(schema))
    rows, rescued = [], []
    for value in objects:
        misfits: dict[str, Any] = {}
        rows.append(None if value is None else _fit_struct(value, kind, "", misfits))
        rescued.append(json.dumps(misfits) if misfits else None)
    return ParsedValues(pa.array(rows, kind), pa.array(rescued, pa.string()), errors, schema)


def _parse_objects(values: pa.Array) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    objects: list[dict[str, Any] | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            parsed = json.loads(value.decode(), parse_constant=_reject_constant)
        except UnicodeDecodeError as error:
            errors[row] = f"the value is not UTF-8 at byte {error.start}"
        except RecursionError:
            errors[row] = "the value is nested too deeply"
        except ValueError as error:
            errors[row] = f"the value is not JSON: {error}"
        else:
            if isinstance(parsed, dict):
                objects.append(parsed)
                continue
            errors[row] = f"the value is not a JSON object, but {_describe_kind(parsed)}"
        objects.append(None)
    return objects, errors


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number in JSON")


def _describe_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"


def _fit(value: Any, kind: pa.DataType, path: str, misfits: dict[str, Any]) -> Any:
    """Return a value for its column. A value that does not fit goes to `misfits`, and its column is null."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return _fit_struct(value, kind, f"{path}.", misfits)
    try:
        return _fit_list(value, kind) if pa.types.is_list(kind) else _fit_scalar(value, kind)
    except TypeMismatch:
        misfits[path] = value
        return None


def _fit_struct(value: dict[str, Any], kind: pa.DataType, prefix: str, misfits: dict[str, Any]) -> dict[str, Any]:
    types = {field.name: field.type for field in kind}
    for name, member in value.items():
        if name not in types and not _is_untyped(member):
            misfits[prefix + name] = member
    return {name: _fit(value.get(name), member, prefix + name, misfits) for name, member in types.items()}


def _fit_list(value: Any, kind: pa.DataType) -> list[Any]:
    """Return a list for its column; raise TypeMismatch if any element does not fit."""
    if not isinstance(value, list):
        raise TypeMismatch("not a list")
    misfits: dict[str, Any] = {}
    elements = [_fit(element, kind.value_type, "", misfits) for element in value]
    if misfits:
        raise TypeMismatch("an element does not fit")
    return elements


def _fit_scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return parse_timestamp(value)
    if pa.types.is_date(kind):
        return parse_date(value)
    if pa.types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif pa.types.is_string(kind):
        fits = isinstance(value, str) and _is_unicode(value)
    elif pa.types.is_integer(kind):
        fits = isinstance(value, int) and not isinstance(value, bool) and value in INT64
    elif pa.types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise TypeMismatch("too large") from None
        fits = math.isfinite(value)
    else:
        fits = False
    if not fits:
        raise TypeMismatch("another type")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_untyped(value: Any) -> bool:
    """Whether a value is null, or a list or object that has only nulls."""
    if isinstance(value, list):
        return all(map(_is_untyped, value))
    if isinstance(value, dict):
        return all(map(_is_untyped, value.values()))
    return value is None
