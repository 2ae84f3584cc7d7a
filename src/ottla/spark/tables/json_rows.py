"""Records' values into columns: JSON objects, read by Arrow where all is in order, and one by one where it is not.

Both ways give the same. Arrow's reader takes a batch at a time and stops at the first surprise; then it is given each
half, and so on, until few are left around what surprised it. Those are looked at one by one: what is no object goes to
the dead letters, what does not fit its column is rescued.
"""

import json
import math
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from ottla.spark.tables.declared import Misfit, day, is_written_as_text, moment
from ottla.spark.tables.evolution import INT64, MAX_DEPTH, NOTHING, Fields, extended, is_allowed, type_of
from ottla.spark.tables.record_columns import value_fields

_WRAPPED: Final = "v"
_FEW: Final = 64


class Values(NamedTuple):
    """What a batch of values is: rows and rescued texts, errors by row, and the columns that it takes to hold all."""

    rows: pa.StructArray | None
    """One a value, null where there is an error; None if the columns at hand do not do."""
    rescued: pa.Array
    errors: dict[int, str]
    wanted: pa.Schema


def read_values(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> Values:
    """Values, none of them null, as rows of the schema's value columns. Columns that are `fixed` keep their types."""
    found = read_by_arrow(values, schema, fixed)
    if found is not None:
        return found
    if len(values) <= _FEW:
        return read_one_by_one(values, schema, fixed)
    middle = len(values) // 2
    first = read_values(values[:middle], schema, fixed)
    # What the first half has found spares the second a closer look. If that is more than the schema has, all of it is
    # going to be read again.
    second = read_values(values[middle:], first.wanted, fixed)
    return Values(
        rows=pa.concat_arrays([first.rows, second.rows])
        if first.rows is not None and second.rows is not None
        else None,
        rescued=pa.concat_arrays([first.rescued, second.rescued]),
        errors={**first.errors, **{middle + row: error for row, error in second.errors.items()}},
        wanted=second.wanted,
    )


def read_by_arrow(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> Values | None:
    """None if Arrow's reader finds anything that is not as it should be."""
    own = value_fields(schema)
    found = _parse(values, [pa.field(f.name, pa.string()) if is_written_as_text(f.type) else f for f in own])
    if found is None:
        return None
    rescued = pa.nulls(len(values), pa.string())
    try:
        strange = _new_fields(pa.struct(own), found.type, 0)
        wanted = extended(schema, strange, fixed)
        if wanted != schema:
            return Values(None, rescued, {}, wanted)
        if strange:
            return None
        members = [_as_declared(_only(pc.struct_field(found, [field.name]), field.type), field.type) for field in own]
    except Misfit:
        return None
    rows = pa.StructArray.from_arrays(members, fields=own) if own else _without_columns(len(values))
    return Values(rows, rescued, {}, schema)


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
        # Lists of nothing but null come out of joint (Arrow 26).
        table.validate()
    except pa.ArrowInvalid:
        return None
    # Each value made one object at least: as many objects as values means one each.
    if table.num_rows != len(values) or table.column_names != [_WRAPPED]:
        return None
    found: pa.StructArray = pa.concat_arrays(table.column(0).chunks)
    return None if found.null_count else found


def _new_fields(known: pa.DataType, found: pa.DataType, depth: int) -> list[pa.Field]:
    """What a struct that was read has more than is known; raises Misfit where values must be looked at one by one."""
    types = {field.name: field.type for field in known}
    new = []
    for field in found:
        if field.name not in types:
            if (kind := _inferred(field.type, depth + 1)) != NOTHING:
                if not is_allowed(field.name):
                    raise Misfit(field.name)
                new.append(pa.field(field.name, kind))
        elif inner := _new_within(types[field.name], field.type, depth + 1):
            new.append(pa.field(field.name, inner))
    return new


def _new_within(known: pa.DataType, found: pa.DataType, depth: int) -> pa.DataType | None:
    if pa.types.is_struct(known):
        members = _new_fields(known, found, depth)
        return pa.struct(members) if members else None
    if pa.types.is_list(known):
        element = _new_within(known.value_type, found.value_type, depth + 1)
        return pa.list_(pa.field("element", element)) if element else None
    return None


def _inferred(kind: pa.DataType, depth: int) -> pa.DataType:
    """The type of a new column. Arrow takes whole numbers without end, and NaN, for fractions; we do not."""
    if pa.types.is_floating(kind) or depth > MAX_DEPTH:
        raise Misfit("needs a closer look")
    if pa.types.is_struct(kind):
        members = [(field.name, _inferred(field.type, depth + 1)) for field in kind]
        kept = [pa.field(name, each) for name, each in members if each != NOTHING]
        if not all(is_allowed(field.name) for field in kept) or len({f.name.lower() for f in kept}) < len(kept):
            raise Misfit("a name")
        return pa.struct(kept) if kept else NOTHING
    if pa.types.is_list(kind):
        element = _inferred(kind.value_type, depth + 1)
        return NOTHING if element == NOTHING else pa.list_(pa.field("element", element))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _only(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array without the members that say nothing; raises Misfit for numbers that JSON does not have."""
    if pa.types.is_struct(kind):
        names = {field.name for field in array.type}
        members = [
            _only(array.field(f.name), f.type) if f.name in names else pa.nulls(len(array), f.type) for f in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        items = _only(array.flatten(), kind.value_type)
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        return pa.ListArray.from_arrays(ends, items, kind, mask=array.is_null())
    if pa.types.is_floating(kind) and not (pc.all(pc.is_finite(array), min_count=0).as_py()):
        raise Misfit("no number")
    return array


def _as_declared(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not is_written_as_text(kind):
        return array
    read = moment if pa.types.is_timestamp(kind) else day
    coded = array.dictionary_encode()
    return pa.array([read(text) for text in coded.dictionary.to_pylist()], kind).take(coded.indices)


def _without_columns(count: int) -> pa.StructArray:
    return pa.array([{}] * count, pa.struct([]))


def read_one_by_one(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> Values:
    """The same, and for anything: this is what the rules are."""
    objects, errors = _objects(values)
    strange, seen = Fields(), set()
    for each in objects:
        if each is not None and (found := type_of(each)) not in seen:
            seen.add(found)
            for field in () if found == NOTHING else found:
                strange.add(field)
    wanted = extended(schema, strange, fixed)
    if wanted != schema:
        return Values(None, pa.nulls(len(values), pa.string()), errors, wanted)
    kind = pa.struct(value_fields(schema))
    rows, rescued = [], []
    for each in objects:
        left: dict[str, Any] = {}
        rows.append(None if each is None else _fit_struct(each, kind, "", left))
        rescued.append(json.dumps(left) if left else None)
    return Values(pa.array(rows, kind), pa.array(rescued, pa.string()), errors, schema)


def _objects(values: pa.Array) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    objects: list[dict[str, Any] | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            found = json.loads(value.decode(), parse_constant=_refuse)
        except UnicodeDecodeError as error:
            errors[row] = f"the value is not UTF-8 at byte {error.start}"
        except RecursionError:
            errors[row] = "the value is not JSON that can be read: it nests too deep"
        except ValueError as error:
            errors[row] = f"the value is not JSON: {error}"
        else:
            if isinstance(found, dict):
                objects.append(found)
                continue
            errors[row] = f"the value is JSON, but {_kind_of(found)} and not an object"
        objects.append(None)
    return objects, errors


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number in JSON")


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case _:
            return "a list"


def _fit(value: Any, kind: pa.DataType, path: str, left: dict[str, Any]) -> Any:
    """A value as its column holds it; what it does not hold goes to `left`, and is null."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return _fit_struct(value, kind, f"{path}.", left)
    try:
        return _fit_list(value, kind) if pa.types.is_list(kind) else _fit_scalar(value, kind)
    except Misfit:
        left[path] = value
        return None


def _fit_struct(value: dict[str, Any], kind: pa.DataType, prefix: str, left: dict[str, Any]) -> dict[str, Any]:
    types = {field.name: field.type for field in kind}
    for name, each in value.items():
        if name not in types and not _says_nothing(each):
            left[prefix + name] = each
    return {name: _fit(value.get(name), each, prefix + name, left) for name, each in types.items()}


def _fit_list(value: Any, kind: pa.DataType) -> list[Any]:
    """A list fits as a whole or not at all."""
    if not isinstance(value, list):
        raise Misfit("no list")
    left: dict[str, Any] = {}
    found = [_fit(each, kind.value_type, "", left) for each in value]
    if left:
        raise Misfit("an element")
    return found


def _fit_scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return moment(value)
    if pa.types.is_date(kind):
        return day(value)
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
            raise Misfit("too large") from None
        fits = math.isfinite(value)
    else:
        fits = False
    if not fits:
        raise Misfit("another type")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _says_nothing(value: Any) -> bool:
    """Null, and lists and objects of nothing else."""
    if isinstance(value, list):
        return all(map(_says_nothing, value))
    if isinstance(value, dict):
        return all(map(_says_nothing, value.values()))
    return value is None
