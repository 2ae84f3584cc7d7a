"""Decodes values in JSON directly into Arrow columns.

Arrow's reader receives a whole batch as one document. Each value is wrapped as `{"v": ...}`, so that an empty value, or
a value with two documents, does not shift the following rows. A batch with bad rows is halved until the bad rows are
alone. So a few of them cost little, and no Python object is created for a row.
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
    """Decodes values of one type: a struct, or another type that JSON has."""

    def __init__(self, wanted: pa.DataType) -> None:
        check_readable(wanted, "value")
        self._type = wanted
        self._options = _options_for(_as_text(wanted))

    def decode(self, values: pa.Array) -> tuple[pa.Array, Errors]:
        """Return the decoded values, with null for bad ones, and the errors by row."""
        errors: Errors = {}
        given = pc.indices_nonzero(values.is_valid())
        wrapped = _wrap(values.drop_null())
        parts = self._parse(wrapped, 0, len(wrapped), errors)
        decoded = pa.concat_arrays(parts) if parts else pa.nulls(0, self._type)
        rows = given.to_pylist() if errors else []
        if values.null_count:
            places = pa.array([None] * len(values), pa.int64()).to_numpy(zero_copy_only=False)
            places[given.to_numpy()] = range(len(given))
            decoded = decoded.take(pa.array(places, pa.int64(), from_pandas=True))
        return decoded, {rows[index]: error for index, error in errors.items()}

    def _parse(self, wrapped: pa.Array, start: int, stop: int, errors: Errors) -> list[pa.Array]:
        if start == stop:
            return []
        try:
            return [self._read(wrapped.slice(start, stop - start))]
        except pa.ArrowInvalid as error:
            if stop - start == 1:
                errors[start] = self._add_column(wrapped.slice(start, 1), describe_error(str(error)))
                return [pa.nulls(1, self._type)]
        middle = (start + stop) // 2
        return self._parse(wrapped, start, middle, errors) + self._parse(wrapped, middle, stop, errors)

    def _read(self, wrapped: pa.Array) -> pa.Array:
        column = _read(wrapped, self._options).column(_FIELD).combine_chunks()
        whole = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
        return whole.cast(self._type)

    def _add_column(self, row: pa.Array, problem: str) -> str:
        """Return the problem of a single row with its column, which Arrow does not always name."""
        if problem.startswith(("column ", "not JSON")) or not pa.types.is_struct(self._type):
            return problem
        for field in self._type:
            alone = JsonDecoder(pa.struct([field]))
            try:
                alone._read(row)
            except pa.ArrowInvalid as error:
                if not pa.types.is_struct(field.type):
                    return f"column {field.name}: {problem}"
                return f"column {field.name}.{_add_inner_column(field, row, describe_error(str(error)))}"
        return problem


def _add_inner_column(field: pa.Field, row: pa.Array, problem: str) -> str:
    """Return the problem with the field of the struct that causes it."""
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
    """Return the type for Arrow's reader, with text for dates: the reader accepts dates only as numbers of days."""
    if pa.types.is_struct(wanted):
        return pa.struct([pa.field(field.name, _as_text(field.type), field.nullable) for field in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_as_text(wanted.value_type)))
    return pa.string() if pa.types.is_date(wanted) else wanted


def _wrap(values: pa.Array) -> pa.Array:
    # Not module constants: Arrow imports pandas to create a scalar, and processes that only plan do not need pandas.
    head, tail, between = (pa.scalar(text, pa.binary()) for text in (b'{"v":', b"}", b""))
    return pc.binary_join_element_wise(head, values, tail, between)


def _read(wrapped: pa.Array, options: pa.json.ParseOptions) -> pa.Table:
    lists = pa.ListArray.from_arrays(pa.array([0, len(wrapped)], pa.int32()), wrapped)
    document = pc.binary_join(lists, pa.scalar(b"\n", pa.binary()))[0].as_buffer()
    # One block, because Arrow's errors give the position within a block.
    reading = pa.json.ReadOptions(use_threads=False, block_size=document.size + 1)
    table = pa.json.read_json(pa.BufferReader(document), reading, options)
    if table.num_rows != len(wrapped):
        raise pa.ArrowInvalid("JSON parse error: more than one document")
    return table


def describe_error(problem: str) -> str:
    """Rewrite an error of Arrow's reader as an error of the value."""
    if match := _CHANGED.search(problem):
        path = match["path"].replace("/[]", "[]").replace("/", ".")
        return f"column {path or 'value'}: {match['what']}"
    if match := _CONVERTED.search(problem):
        value = f": {match['value'].strip()}" if match["value"] else ""
        return f"not a {match['type'].split('[')[0].rstrip(',')}{value}"
    if match := _PARSED.search(problem):
        return f"not JSON: {match['what'].strip()}"
    return problem


def check_readable(wanted: pa.DataType, path: str) -> None:
    """Raise OptionError for a type that Arrow's reader cannot read from JSON."""
    if pa.types.is_struct(wanted):
        for field in wanted:
            check_readable(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(wanted):
        check_readable(wanted.value_type, f"{path}[]")
    elif pa.types.is_map(wanted):
        raise OptionError("value.schema", f"column {path}: maps cannot be read from JSON; use a struct or a string")


def infer_type(samples: pa.Array) -> pa.DataType | None:
    """Infer the type of the values, ignoring those that contradict earlier ones. Times stay text."""
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
    return _without_times(_read(pa.concat_arrays(taken), options).schema.field(_FIELD).type)


def _without_times(inferred: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(inferred):
        return pa.struct([(field.name, _without_times(field.type)) for field in inferred])
    if pa.types.is_list(inferred):
        return pa.list_(_without_times(inferred.value_type))
    if pa.types.is_timestamp(inferred) or pa.types.is_null(inferred):
        return pa.string()
    return inferred
