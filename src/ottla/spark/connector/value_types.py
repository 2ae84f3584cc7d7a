"""The type of the column `value`, found once on the driver: from the schema given, from a registry, or from samples."""

import json
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StringType

from ottla.spark.connector.cluster import shared
from ottla.spark.connector.ddl import NotDdl, parse_columns
from ottla.spark.connector.fetching import Range
from ottla.spark.connector.json_values import check_readable, infer
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.read_options import ReadOptions
from ottla.spark.connector.registry import Registry
from ottla.spark.connector.value_options import ValueOptions


class ValueType(NamedTuple):
    """The column's type, and the schema that tasks read with."""

    column: DataType
    schema: str | None


def resolve(options: ReadOptions, values: ValueOptions) -> ValueType:
    """What `value` is; raises OptionError."""
    if values.format == "string":
        return ValueType(StringType(), None)
    if values.format == "json":
        found = _json_type(options, values)
        check_readable(to_arrow_type(found, timezone="UTC"), "value")
        return ValueType(found, None)
    text = values.schema if values.schema is not None else _from_registry(options, values)
    if values.format == "avro":
        try:
            from ottla.spark.connector.avro_values import arrow_type, parse
        except ImportError as error:
            raise _missing("avro", error) from error
        return ValueType(_column(arrow_type(parse(text), "value")), text)
    try:
        from ottla.spark.connector.protobuf_values import ProtobufDecoder, read_descriptors
    except ImportError as error:
        raise _missing("protobuf", error) from error
    return ValueType(_column(ProtobufDecoder(read_descriptors(text), values.message, None).type), text)


def _missing(name: str, error: ImportError) -> OptionError:
    return OptionError("value.format", f"{name} needs {error.name}: pip install 'ottla[formats]'")


def _column(found: pa.DataType) -> DataType:
    return from_arrow_type(found, prefer_timestamp_ntz=True)


def _from_registry(options: ReadOptions, values: ValueOptions) -> str:
    assert values.registry is not None, "the options were checked"
    subject = values.subject
    if subject is None:
        topics = options.subscription.topics
        if len(topics) != 1:
            raise OptionError("value.subject", "is needed where more than one topic is read")
        subject = f"{topics[0]}-value"
    registry = Registry(values.registry, values.registry_auth)
    found = registry.latest(subject, serialized=values.format == "protobuf")
    if found.kind.lower() != values.format:
        raise OptionError("value.format", f"subject {subject!r} has a schema of {found.kind}, not of {values.format}")
    return found.text


def _json_type(options: ReadOptions, values: ValueOptions) -> DataType:
    if values.schema is not None:
        return _parse(values.schema)
    if values.registry is not None:
        return _column(_from_json_schema(json.loads(_from_registry(options, values)), "value"))
    return _column(_inferred(options, values))


def _parse(text: str) -> DataType:
    try:
        return parse_columns(text)
    except NotDdl as error:
        problem = f"{text!r} is no schema such as 'id long, price double': {error}"
        raise OptionError("value.schema", problem) from None


def _from_json_schema(schema: Any, path: str) -> pa.DataType:
    """The type of a JSON Schema, as far as columns have one; raises OptionError."""
    plain = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    if len(kinds) == 1 and kinds[0] in plain:
        return plain[kinds[0]]
    if kinds == ["array"]:
        return pa.list_(_from_json_schema(schema.get("items"), f"{path}[]"))
    if kinds == ["object"] and schema.get("properties"):
        fields = schema["properties"].items()
        return pa.struct([(name, _from_json_schema(below, f"{path}.{name}")) for name, below in fields])
    raise OptionError("value.schema", f"column {path}: the registry's JSON Schema gives it no type of a column")


def _inferred(options: ReadOptions, values: ValueOptions) -> pa.DataType:
    """From the first records of each partition."""
    from ottla.spark.connector.micro_batch_reader import read_raw

    access = shared(options.client)
    keys = access.partitions(options.subscription)
    begins, ends = access.begins(keys), access.ends(keys)
    each = -(-values.infer_records // max(len(keys), 1))
    samples = []
    for key in keys:
        stop = min(begins[key] + each, ends[key])
        if stop > begins[key]:
            wanted = Range(*key, begins[key], stop)
            samples += [batch.column(0) for batch in read_raw(options, wanted, pa.schema([("value", pa.binary())]))]
    found = infer(pa.concat_arrays(samples)) if samples else None
    if found is None:
        raise OptionError(
            "value.schema", "there is no record to infer it from; give one, such as 'id long, price double'"
        )
    return found
