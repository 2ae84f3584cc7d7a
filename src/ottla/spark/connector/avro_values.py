"""Decodes values in Avro: fastavro reads them with the writer's schema and resolves them to the query's schema."""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa

from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.registry import BadFrame, Registry, UnknownSchema, unframe

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
# fastavro has no error of its own for malformed bytes; it lets these escape.
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
    """Decodes values of one schema, with or without a registry's frame."""

    def __init__(self, text: str, registry: Registry | None) -> None:
        self._reader = parse(text)
        self._registry = registry
        self._writers: dict[int, Any] = {}
        self.type = arrow_type(self._reader, "value")

    def decode(self, values: pa.Array) -> tuple[pa.Array, Errors]:
        """Return the decoded values, with null for bad ones, and the errors by row."""
        decoded: list[Any] = []
        errors: Errors = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                decoded.append(None)
                continue
            try:
                decoded.append(self._read(value))
            except OptionError:
                raise
            except (BadFrame, UnknownSchema) as error:
                errors[row] = str(error)
                decoded.append(None)
            except _READING_ERRORS as error:
                errors[row] = f"not Avro of this schema: {str(error) or 'unexpected end of the value'}"
                decoded.append(None)
        return _to_array(decoded, self.type, errors), errors

    def _read(self, value: bytes) -> Any:
        if self._registry is None:
            return _read_all(value, self._reader, None)
        schema_id, content = unframe(value)
        if schema_id not in self._writers:
            self._writers[schema_id] = parse(self._registry.by_id(schema_id).text)
        return _read_all(content, self._writers[schema_id], self._reader)


def _read_all(content: bytes, writer: Any, reader: Any) -> Any:
    stream = io.BytesIO(content)
    value = fastavro.schemaless_reader(stream, writer, reader)
    if stream.tell() != len(content):
        raise ValueError(f"the value ends {len(content) - stream.tell()} bytes before the end of the record")
    return value


def _to_array(values: list[Any], wanted: pa.DataType, errors: Errors) -> pa.Array:
    """Return values as an array. A value that does not fit the column's type is bad as well."""
    try:
        return pa.array(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for row, value in enumerate(values):
            try:
                pa.array([value], wanted)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                errors[row] = str(error)
                values[row] = None
        return pa.array(values, wanted)


def parse(text: str) -> Any:
    """Parse a schema; raise OptionError."""
    try:
        return fastavro.parse_schema(_simplify(json.loads(text)))
    except (ValueError, TypeError, LookupError, fastavro.schema.SchemaParseException) as error:
        raise OptionError("value.schema", f"is not an Avro schema: {error!r}") from error


def _simplify(schema: Any) -> Any:
    """Return the schema without logical types that columns lack, so that such values keep their stored type."""
    if isinstance(schema, list):
        return [_simplify(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    is_supported = logical == "decimal" or logical in _LOGICAL
    return {key: _simplify(value) for key, value in schema.items() if key != "logicalType" or is_supported}


def arrow_type(schema: Any, path: str, defined: Mapping[str, Any] | None = None) -> pa.DataType:
    """Return the column type of a schema; raise OptionError if Spark has no such type."""
    named = dict(defined or {})
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise OptionError(
                "value.schema",
                f"column {path}: a union of {len(branches)} types has no column type; use one type or null",
            )
        return arrow_type(branches[0], path, named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in named and named[schema] is not None:
            return arrow_type(named[schema], path, named)
        raise OptionError("value.schema", f"column {path}: type {schema} is undefined or contains itself")
    return _complex_type(schema, path, named)


def _complex_type(schema: Mapping[str, Any], path: str, named: dict[str, Any]) -> pa.DataType:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if isinstance(logical, str) and logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        # None marks a record as open: a record that contains itself has no finite column type.
        named[schema["name"]] = None
        fields = []
        for field in schema["fields"]:
            fields.append(pa.field(field["name"], arrow_type(field["type"], f"{path}.{field['name']}", named)))
            _collect_named(field["type"], named)
        named[schema["name"]] = schema
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], f"{path}[]", named))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], f"{path}[]", named))
    return arrow_type(kind, path, named)


def _collect_named(schema: Any, named: dict[str, Any]) -> None:
    """Add the named types that a field defines, because later fields may refer to them."""
    for branch in schema if isinstance(schema, list) else [schema]:
        if isinstance(branch, dict) and "name" in branch and named.get(branch["name"]) is None:
            named[branch["name"]] = branch
        if isinstance(branch, dict):
            for field in branch.get("fields", []):
                _collect_named(field["type"], named)
            for key in ("items", "values"):
                if key in branch:
                    _collect_named(branch[key], named)
