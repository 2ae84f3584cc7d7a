"""Values in JSON, straight into Arrow columns.

A whole batch is one document for Arrow's reader: each value is wrapped as `{"v": ...}`, so that one that is empty, or
two in one, cannot shift the rows behind it. Where a batch cannot be read, it is halved until the bad rows stand alone:
a few of them cost little, and no object is made for a row.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ottla.spark.connector.option_values import OptionError

_FIELD: Final = "v"
_CHANGED: Final = re.compile(r"Column\(/v/?(?P<path>[^)]*)\) (?P<what>.*?)(?: in row \d+)?$")
_CONVERTED: Final = re.compile(r"Failed to convert JSON to (?P<type>\S+)(?:, couldn't parse:\s*(?P<value>.*))?")
_PARSED: Final = re.compile(r"JSON parse error: (?P<what>.*?)\.?(?: in row \d+)?$", re.DOTALL)

Errors = dict[int, str]


class JsonDecoder:
    """Values of one type: a struct, or whatever else JSON can hold."""

    def __init__(self, wanted: pa.DataType) -> None:
        check_readable(wanted, "value")
        self._type = wanted
        self._options = _options_for(_as_text(wanted))

    def decode(self, values: pa.Array) -> tuple[pa.Array, Errors]:
        """All values; those that are bad are null, and it is said by row why."""
        errors: Errors = {}
        given = pc.indices_nonzero(values.is_valid())
        wrapped = _wrap(values.drop_null())
        parts = self._parse(wrapped, 0, len(wrapped), errors)
        found = pa.concat_arrays(parts) if parts else pa.nulls(0, self._type)
        numbers = given.to_pylist() if errors else []
        if values.null_count:
            places = pa.array([None] * len(values), pa.int64()).to_numpy(zero_copy_only=False)
            places[given.to_numpy()] = range(len(given))
            found = found.take(pa.array(places, pa.int64(), from_pandas=True))
        return found, {numbers[row]: why for row, why in errors.items()}

    def _parse(self, wrapped: pa.Array, start: int, stop: int, errors: Errors) -> list[pa.Array]:
        if start == stop:
            return []
        try:
            return [self._read(wrapped.slice(start, stop - start))]
        except pa.ArrowInvalid as error:
            if stop - start == 1:
                errors[start] = self._blame(wrapped.slice(start, 1), explain(str(error)))
                return [pa.nulls(1, self._type)]
        middle = (start + stop) // 2
        return self._parse(wrapped, start, middle, errors) + self._parse(wrapped, middle, stop, errors)

    def _read(self, wrapped: pa.Array) -> pa.Array:
        column = _read(wrapped, self._options).column(_FIELD).combine_chunks()
        whole = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
        return whole.cast(self._type)

    def _blame(self, row: pa.Array, problem: str) -> str:
        """What is wrong with a single row, with the column that Arrow does not always name."""
        if problem.startswith(("column ", "it is not")) or not pa.types.is_struct(self._type):
            return problem
        for field in self._type:
            alone = JsonDecoder(pa.struct([field]))
            try:
                alone._read(row)
            except pa.ArrowInvalid as error:
                if not pa.types.is_struct(field.type):
                    return f"column {field.name}: {problem}"
                return f"column {field.name}.{_inner(field, row, explain(str(error)))}"
        return problem


def _inner(field: pa.Field, row: pa.Array, problem: str) -> str:
    """The path below a struct that holds what is wrong."""
    for below in field.type:
        narrow = JsonDecoder(pa.struct([pa.field(field.name, pa.struct([below]))]))
        try:
            narrow._read(row)
        except pa.ArrowInvalid:
            return f"{below.name}: {problem}"
    return problem


def _options_for(wanted: pa.DataType) -> pa.json.ParseOptions:
    schema = pa.schema([(_FIELD, wanted)])
    return pa.json.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")


def _as_text(wanted: pa.DataType) -> pa.DataType:
    """The type as Arrow's reader takes it: it knows dates as numbers of days only, so they are text until then."""
    if pa.types.is_struct(wanted):
        return pa.struct([pa.field(field.name, _as_text(field.type), field.nullable) for field in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_as_text(wanted.value_type)))
    return pa.string() if pa.types.is_date(wanted) else wanted


def _wrap(values: pa.Array) -> pa.Array:
    # Scalars are made where they are needed: Arrow loads Pandas to make one, which processes that only plan do without.
    head, tail, between = (pa.scalar(each, pa.binary()) for each in (b'{"v":', b"}", b""))
    return pc.binary_join_element_wise(head, values, tail, between)


def _read(wrapped: pa.Array, options: pa.json.ParseOptions) -> pa.Table:
    lists = pa.ListArray.from_arrays(pa.array([0, len(wrapped)], pa.int32()), wrapped)
    document = pc.binary_join(lists, pa.scalar(b"\n", pa.binary()))[0].as_buffer()
    # In one block: what is split at lines would be read in parts, with a part's words for what is wrong.
    reading = pa.json.ReadOptions(use_threads=False, block_size=document.size + 1)
    table = pa.json.read_json(pa.BufferReader(document), reading, options)
    if table.num_rows != len(wrapped):
        raise pa.ArrowInvalid("JSON parse error: more than one document")
    return table


def explain(problem: str) -> str:
    """What Arrow says, in words about the value."""
    if found := _CHANGED.search(problem):
        path = found["path"].replace("/[]", "[]").replace("/", ".")
        return f"column {path or 'value'}: {found['what']}"
    if found := _CONVERTED.search(problem):
        value = f": {found['value'].strip()}" if found["value"] else ""
        return f"a value is no {found['type'].split('[')[0].rstrip(',')}{value}"
    if found := _PARSED.search(problem):
        return f"it is not JSON: {found['what'].strip()}"
    return problem


def check_readable(wanted: pa.DataType, path: str) -> None:
    """Raise OptionError for a type that Arrow's reader cannot make of JSON."""
    if pa.types.is_struct(wanted):
        for field in wanted:
            check_readable(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(wanted):
        check_readable(wanted.value_type, f"{path}[]")
    elif pa.types.is_map(wanted):
        raise OptionError("value.schema", f"column {path}: a map is not read from JSON; a struct names its fields")


def infer(samples: pa.Array) -> pa.DataType | None:
    """The type of as many values as go together; None if there is none. Text stays text, also where it is a time."""
    options = pa.json.ParseOptions(newlines_in_values=True)

    def grow(taken: list[pa.Array], more: pa.Array) -> list[pa.Array]:
        try:
            _read(pa.concat_arrays([*taken, more]), options)
        except pa.ArrowInvalid:
            if len(more) == 1:
                return taken
            middle = len(more) // 2
            return grow(grow(taken, more.slice(0, middle)), more.slice(middle))
        return [*taken, more]

    given = _wrap(samples.drop_null())
    taken = grow([], given) if len(given) else []
    if not taken:
        return None
    return _settled(_read(pa.concat_arrays(taken), options).schema.field(_FIELD).type)


def _settled(found: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found):
        return pa.struct([(field.name, _settled(field.type)) for field in found])
    if pa.types.is_list(found):
        return pa.list_(_settled(found.value_type))
    if pa.types.is_timestamp(found) or pa.types.is_null(found):
        return pa.string()
    return found
