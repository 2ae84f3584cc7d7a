"""The type of the column `value`, resolved once on the driver: from the given schema, a registry or samples."""

import json
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StringType

from ottla.spark.connector.cluster import shared_cluster
from ottla.spark.connector.ddl import InvalidDdl, parse_columns
from ottla.spark.connector.json_values import check_readable, infer_type
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.range_reader import Range
from ottla.spark.connector.read_options import ReadOptions
from ottla.spark.connector.registry import Registry
from ottla.spark.connector.value_options import ValueOptions


class ValueType(NamedTuple):
    """The column's type, and the schema with which tasks decode."""

    column: DataType
    schema: str | None


def resolve_value_type(options: ReadOptions, values: ValueOptions) -> ValueType:
    """Return the type of `value`; raise OptionError if it cannot be resolved."""
    if values.format == "string":
        return ValueType(StringType(), None)
    if values.format == "json":
        column_type = _json_type(options, values)
        check_readable(to_arrow_type(column_type, timezone="UTC"), "value")
        return ValueType(column_type, None)
    text = values.schema if values.schema is not None else _from_registry(options, values)
    if values.format == "avro":
        try:
            from ottla.spark.connector.avro_values import arrow_type, parse
        except ImportError as error:
            raise _missing_package("avro", error) from error
        return ValueType(_column(arrow_type(parse(text), "value")), text)
    try:
        from ottla.spark.connector.protobuf_values import ProtobufDecoder, read_descriptors
    except ImportError as error:
        raise _missing_package("protobuf", error) from error
    return ValueType(_column(ProtobufDecoder(read_descriptors(text), values.message, None).type), text)


def _missing_package(name: str, error: ImportError) -> OptionError:
    problem = f"{name} requires the package {error.name}, which is not installed; run pip install 'ottla[formats]'"
    return OptionError("value.format", problem)


def _column(arrow_type: pa.DataType) -> DataType:
    return from_arrow_type(arrow_type, prefer_timestamp_ntz=True)


def _from_registry(options: ReadOptions, values: ValueOptions) -> str:
    assert values.registry is not None, "the options were checked"
    subject = values.subject
    if subject is None:
        topics = options.subscription.topics
        if len(topics) != 1:
            raise OptionError("value.subject", "is missing; a query that does not name exactly one topic requires it")
        subject = f"{topics[0]}-value"
    registry = Registry(values.registry, values.registry_auth)
    schema = registry.latest(subject, serialized=values.format == "protobuf")
    if schema.kind.lower() != values.format:
        problem = f"{values.format} does not match subject {subject!r}, which has a schema of type {schema.kind}"
        raise OptionError("value.format", problem)
    return schema.text


def _json_type(options: ReadOptions, values: ValueOptions) -> DataType:
    if values.schema is not None:
        return _parse(values.schema)
    if values.registry is not None:
        return _column(_from_json_schema(json.loads(_from_registry(options, values)), "value"))
    return _column(_infer_from_records(options, values))


def _parse(text: str) -> DataType:
    try:
        return parse_columns(text)
    except InvalidDdl as error:
        problem = f"{text!r} is not a schema such as 'id long, price double': {error}"
        raise OptionError("value.schema", problem) from None


def _from_json_schema(schema: Any, path: str) -> pa.DataType:
    """Return the type for a JSON Schema; raise OptionError if no column type corresponds."""
    plain = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = [name for name in kind if name != "null"] if isinstance(kind, list) else [kind]
    if len(kinds) == 1 and kinds[0] in plain:
        return plain[kinds[0]]
    if kinds == ["array"]:
        return pa.list_(_from_json_schema(schema.get("items"), f"{path}[]"))
    if kinds == ["object"] and schema.get("properties"):
        fields = schema["properties"].items()
        return pa.struct([(name, _from_json_schema(below, f"{path}.{name}")) for name, below in fields])
    raise OptionError(
        "value.schema",
        f"column {path}: the registry's JSON Schema has no type that a column can have; give one, such as "
        "'id long, price double'",
    )


def _infer_from_records(options: ReadOptions, values: ValueOptions) -> pa.DataType:
    """Infer the type from the first records of each partition."""
    from ottla.spark.connector.micro_batch_reader import read_raw

    cluster = shared_cluster(options.client)
    keys = cluster.partitions(options.subscription)
    begins, ends = cluster.begins(keys), cluster.ends(keys)
    partition_records = -(-values.infer_records // max(len(keys), 1))
    samples = []
    for key in keys:
        stop = min(begins[key] + partition_records, ends[key])
        if stop > begins[key]:
            wanted = Range(*key, begins[key], stop)
            samples += [batch.column(0) for batch in read_raw(options, wanted, pa.schema([("value", pa.binary())]))]
    inferred = infer_type(pa.concat_arrays(samples)) if samples else None
    if inferred is None:
        raise OptionError(
            "value.schema",
            "cannot be inferred, because there are no records; give one, such as 'id long, price double'",
        )
    return inferred
