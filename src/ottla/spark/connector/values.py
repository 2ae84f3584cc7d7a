"""Decodes the values of records into columns, batch by batch, and handles values that cannot be decoded.

By default, a value that cannot be decoded does not fail the query. The value is null, and the column `bad` holds the
error and the original bytes. Alternatively the record goes to a dead-letter topic, with the error and its origin in the
headers, once for each time that it is read.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.metadata import partition_label
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.range_reader import Range
from ottla.spark.connector.registry import Registry
from ottla.spark.connector.task_writer import write_at_least_once
from ottla.spark.connector.value_options import ValueOptions
from ottla.spark.connector.write_options import DECISIONS_TOPIC, WriteOptions

BAD: Final = "bad"
BAD_TYPE: Final = pa.struct([("error", pa.string()), ("value", pa.binary())])
_HEADERS: Final = TYPES["headers"]


class BadValue(Exception):
    """A value cannot be decoded, and the query has `value.onError=fail`."""


class Decoder(Protocol):
    """Decodes values of one format."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the decoded values, with null for bad ones, and the errors by row."""


class TextDecoder:
    """Decodes UTF-8 text."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        try:
            return values.cast(pa.string()), {}
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            errors = {}
            for row, value in enumerate(values.to_pylist()):
                try:
                    texts.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    errors[row] = f"not UTF-8: {error.reason} at byte {error.start}"
                    texts.append(None)
            return pa.array(texts, pa.string()), errors


def make_decoder(options: ValueOptions, schema: str | None, wanted: pa.DataType) -> Decoder:
    """Return a decoder for the query's column type; `schema` is the one that `value_types` resolved."""
    registry = None if options.registry is None else Registry(options.registry, options.registry_auth)
    if options.format == "string":
        return TextDecoder()
    if options.format == "json":
        from ottla.spark.connector.json_values import JsonDecoder

        return FramedDecoder(JsonDecoder(wanted)) if registry is not None else JsonDecoder(wanted)
    assert schema is not None, "value_types resolves the schema"
    if options.format == "avro":
        from ottla.spark.connector.avro_values import AvroDecoder

        return AvroDecoder(schema, registry)
    from ottla.spark.connector.protobuf_values import ProtobufDecoder, read_descriptors

    return ProtobufDecoder(read_descriptors(schema), options.message, registry)


class FramedDecoder:
    """Removes the registry's frame from each value, for formats that do not need the writer's schema."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        sizes = pc.binary_length(values)
        framed = pc.and_(pc.greater_equal(sizes, 5), pc.equal(pc.binary_slice(values, 0, 1), b"\x00"))
        bad = pc.indices_nonzero(pc.invert(pc.fill_null(framed, fill_value=True))).to_pylist()
        content = pc.if_else(framed, pc.binary_slice(values, 5), pa.scalar(None, pa.binary()))
        decoded, errors = self._inner.decode(content)
        no_frame = "not framed for a schema registry: the value must begin with a zero byte and a four-byte schema id"
        return decoded, {**errors, **dict.fromkeys(bad, no_frame)}


class ValueStage:
    """Turns batches of raw records into batches with the query's columns."""

    def __init__(self, options: ValueOptions, schema: str | None, client: ClientSettings, wanted: pa.Schema) -> None:
        self._options = options
        self._client = client
        self._wanted = wanted
        field = wanted.field("value") if "value" in wanted.names else None
        self._type = None if field is None else field.type
        self._decoder = None if field is None else make_decoder(options, schema, field.type)

    @property
    def raw_schema(self) -> pa.Schema:
        """The columns to read: the query's, and those that the report of a bad value needs."""
        names = [name for name in self._wanted.names if name != BAD]
        if self._decoder is None and BAD in self._wanted.names:
            raise OptionError("schema", "column 'bad' requires column 'value'; add it to the schema")
        more = ["value", "offset"] if self._decoder is not None else []
        if self._options.dead_letter_topic is not None and self._decoder is not None:
            more += ["key", "headers"]
        return pa.schema([(name, TYPES[name]) for name in dict.fromkeys([*names, *more])])

    def decode(self, batches: Generator[pa.RecordBatch, None, None], source: Range) -> Iterator[pa.RecordBatch]:
        """Yield the batches with decoded values; raise BadValue if the query has `value.onError=fail`."""
        with contextlib.closing(batches):
            for batch in batches:
                yield batch if self._decoder is None else self._decode(self._decoder, batch, source)

    def _decode(self, decoder: Decoder, batch: pa.RecordBatch, source: Range) -> pa.RecordBatch:
        values = batch.column("value")
        decoded, errors = decoder.decode(values)
        if errors and self._options.fails:
            row = min(errors)
            place = f"{partition_label(source.topic, source.partition)}, offset {batch.column('offset')[row].as_py()}"
            raise BadValue(
                f"{place}: cannot decode the value: {errors[row]}. "
                "To continue with bad values in the column 'bad', set value.onError=column"
            )
        columns = {name: batch.column(name) for name in batch.schema.names} | {"value": decoded.cast(self._type)}
        if self._options.has_column:
            columns[BAD] = _bad_column(values, errors)
        elif errors:
            self._send_to_dead_letters(batch, errors, source)
            kept = pa.array([row not in errors for row in range(batch.num_rows)], pa.bool_())
            columns = {name: column.filter(kept) for name, column in columns.items()}
        arrays = [columns[name].cast(self._wanted.field(name).type) for name in self._wanted.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._wanted)

    def _send_to_dead_letters(self, batch: pa.RecordBatch, errors: dict[int, str], source: Range) -> None:
        """Write bad records to the dead-letter topic unchanged, with the error and their origin in headers."""
        rows = pa.array(sorted(errors), pa.int64())
        bad = batch.take(rows)
        headers = []
        for row, offset, given in zip(
            rows.to_pylist(), bad.column("offset").to_pylist(), bad.column("headers").to_pylist(), strict=True
        ):
            about = {
                "ottla.error": errors[row],
                "ottla.topic": source.topic,
                "ottla.partition": str(source.partition),
                "ottla.offset": str(offset),
            }
            headers.append([*(given or []), *({"key": key, "value": text.encode()} for key, text in about.items())])
        records = pa.RecordBatch.from_arrays(
            [bad.column("key"), bad.column("value"), pa.array(headers, _HEADERS)], names=["key", "value", "headers"]
        )
        target = WriteOptions(self._client, self._options.dead_letter_topic, False, "ottla-spark", DECISIONS_TOPIC)
        write_at_least_once(target, [records])


def _bad_column(values: pa.Array, errors: dict[int, str]) -> pa.Array:
    if not errors:
        return pa.nulls(len(values), BAD_TYPE)
    texts = pa.array([errors.get(row) for row in range(len(values))], pa.string())
    good = texts.is_null()
    contents = pc.if_else(good, pa.scalar(None, pa.binary()), values)
    return pa.StructArray.from_arrays([texts, contents], fields=list(BAD_TYPE), mask=good)
