"""Values in Avro: read by fastavro with the schema they were written with, into the columns of the query's schema."""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa

from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.registry import Registry, unframe

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
    "null": pa.null(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "date": pa.date32(),
}
# fastavro raises whatever its reading of the bytes comes upon.
_READING_ERRORS: Final = (
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    MemoryError,
    struct.error,
    fastavro.read.SchemaResolutionError,
)
Errors = dict[int, str]


class AvroDecoder:
    """Values of one schema, as bare Avro or in a registry's frames."""

    def __init__(self, text: str, registry: Registry | None) -> None:
        self._reader = parse(text)
        self._registry = registry
        self._writers: dict[int, Any] = {}
        self.type = arrow_type(self._reader, "value")

    def decode(self, values: pa.Array) -> tuple[pa.Array, Errors]:
        """All values; those that are bad are null, and it is said by row why."""
        found: list[Any] = []
        errors: Errors = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                found.append(None)
                continue
            try:
                found.append(self._read(value))
            except OptionError:
                raise
            except _READING_ERRORS as error:
                errors[row] = f"it is no Avro of this schema: {str(error) or 'it ends too early'}"
                found.append(None)
        return _columns(found, self.type, errors), errors

    def _read(self, value: bytes) -> Any:
        if self._registry is None:
            return _read_all(value, self._reader, None)
        number, content = unframe(value)
        if number not in self._writers:
            self._writers[number] = parse(self._registry.by_id(number).text)
        return _read_all(content, self._writers[number], self._reader)


def _read_all(content: bytes, writer: Any, reader: Any) -> Any:
    stream = io.BytesIO(content)
    found = fastavro.schemaless_reader(stream, writer, reader)
    if stream.tell() != len(content):
        raise ValueError(f"{len(content) - stream.tell()} bytes are left behind it")
    return found


def _columns(found: list[Any], wanted: pa.DataType, errors: Errors) -> pa.Array:
    """Values as an array; one that its column cannot hold is bad as well."""
    try:
        return pa.array(found, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for row, value in enumerate(found):
            try:
                pa.array([value], wanted)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                errors[row] = str(error)
                found[row] = None
        return pa.array(found, wanted)


def parse(text: str) -> Any:
    """A schema, ready to be read with; raises OptionError."""
    try:
        return fastavro.parse_schema(_simplified(json.loads(text)))
    except (ValueError, TypeError, LookupError, fastavro.schema.SchemaParseException) as error:
        raise OptionError("value.schema", f"is no Avro schema: {error!r}") from error


def _simplified(schema: Any) -> Any:
    """The schema without logical types that no column has: such values are what they are stored as."""
    if isinstance(schema, list):
        return [_simplified(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    kept = logical == "decimal" or logical in _LOGICAL
    return {key: _simplified(value) for key, value in schema.items() if key != "logicalType" or kept}


def arrow_type(schema: Any, path: str, names: Mapping[str, Any] | None = None) -> pa.DataType:
    """The type of a schema's column; raises OptionError for what has none."""
    known = dict(names or {})
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise OptionError("value.schema", f"column {path}: a union of {len(others)} types has no type of a column")
        return arrow_type(others[0], path, known)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in known and known[schema] is not None:
            return arrow_type(known[schema], path, known)
        raise OptionError("value.schema", f"column {path}: {schema} is not defined, or refers to itself")
    return _complex(schema, path, known)


def _complex(schema: Mapping[str, Any], path: str, known: dict[str, Any]) -> pa.DataType:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if isinstance(logical, str) and logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        # A record within itself would be a column without an end.
        known[schema["name"]] = None
        fields = []
        for field in schema["fields"]:
            fields.append(pa.field(field["name"], arrow_type(field["type"], f"{path}.{field['name']}", known)))
            _learn(field["type"], known)
        known[schema["name"]] = schema
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], f"{path}[]", known))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], f"{path}[]", known))
    return arrow_type(kind, path, known)


def _learn(schema: Any, known: dict[str, Any]) -> None:
    """Types that a field defines can be named by those behind it."""
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, dict) and "name" in each and known.get(each["name"]) is None:
            known[each["name"]] = each
        if isinstance(each, dict):
            for inner in each.get("fields", []):
                _learn(inner["type"], known)
            for below in ("items", "values"):
                if below in each:
                    _learn(each[below], known)
