"""Values of records as columns: decoded batch by batch, and what cannot be decoded put where the query wants it.

A bad value never stops a query unless it is told to. It is null, and the column `bad` holds what is wrong and the bytes
as they came; or the record goes to a dead-letter topic, with what is wrong and where it came from in its headers, once
for each time that it is read.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.metadata import partition_label
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.fetching import Range
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.registry import Registry
from ottla.spark.connector.value_options import ValueOptions
from ottla.spark.connector.write_options import DECISIONS_TOPIC, WriteOptions
from ottla.spark.connector.writing import write_at_least_once

BAD: Final = "bad"
BAD_TYPE: Final = pa.struct([("error", pa.string()), ("value", pa.binary())])
_HEADERS: Final = TYPES["headers"]


class BadValue(Exception):
    """A value that cannot be decoded, in a query that is to fail then."""


class Decoder(Protocol):
    """Reads values of one format."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """All values; those that are bad are null, and it is said by row why."""


class TextDecoder:
    """Values that are text."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        try:
            return values.cast(pa.string()), {}
        except pa.ArrowInvalid:
            found: list[str | None] = []
            errors = {}
            for row, value in enumerate(values.to_pylist()):
                try:
                    found.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    errors[row] = f"it is not UTF-8: {error.reason} at byte {error.start}"
                    found.append(None)
            return pa.array(found, pa.string()), errors


def make_decoder(options: ValueOptions, schema: str | None, wanted: pa.DataType) -> Decoder:
    """A decoder for the column as the query has it; `schema` is what `value_types` has found."""
    registry = None if options.registry is None else Registry(options.registry, options.registry_auth)
    if options.format == "string":
        return TextDecoder()
    if options.format == "json":
        from ottla.spark.connector.json_values import JsonDecoder

        return FramedDecoder(JsonDecoder(wanted)) if registry is not None else JsonDecoder(wanted)
    assert schema is not None, "it was resolved before"
    if options.format == "avro":
        from ottla.spark.connector.avro_values import AvroDecoder

        return AvroDecoder(schema, registry)
    from ottla.spark.connector.protobuf_values import ProtobufDecoder, read_descriptors

    return ProtobufDecoder(read_descriptors(schema), options.message, registry)


class FramedDecoder:
    """Takes a registry's frame off each value, where the schema within does not matter."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        sizes = pc.binary_length(values)
        framed = pc.and_(pc.greater_equal(sizes, 5), pc.equal(pc.binary_slice(values, 0, 1), b"\x00"))
        bad = pc.indices_nonzero(pc.invert(pc.fill_null(framed, fill_value=True))).to_pylist()
        content = pc.if_else(framed, pc.binary_slice(values, 5), pa.scalar(None, pa.binary()))
        found, errors = self._inner.decode(content)
        return found, {**errors, **dict.fromkeys(bad, "it has no frame of a registry: a zero byte and a number")}


class ValueStage:
    """Turns batches of raw records into those that the query wants."""

    def __init__(self, options: ValueOptions, schema: str | None, client: ClientSettings, wanted: pa.Schema) -> None:
        self._options = options
        self._client = client
        self._wanted = wanted
        field = wanted.field("value") if "value" in wanted.names else None
        self._type = None if field is None else field.type
        self._decoder = None if field is None else make_decoder(options, schema, field.type)

    @property
    def raw_schema(self) -> pa.Schema:
        """What is read for it: the query's columns, and those that a bad value is told by."""
        names = [name for name in self._wanted.names if name != BAD]
        if self._decoder is None and BAD in self._wanted.names:
            raise OptionError("schema", "column 'bad' is about column 'value', which is missing")
        more = ["value", "offset"] if self._decoder is not None else []
        if self._options.dead_letter_topic is not None and self._decoder is not None:
            more += ["key", "headers"]
        return pa.schema([(name, TYPES[name]) for name in dict.fromkeys([*names, *more])])

    def decode(self, batches: Generator[pa.RecordBatch, None, None], source: Range) -> Iterator[pa.RecordBatch]:
        """The batches with their values decoded; raises BadValue if the query is to fail."""
        with contextlib.closing(batches):
            for batch in batches:
                yield batch if self._decoder is None else self._decode(self._decoder, batch, source)

    def _decode(self, decoder: Decoder, batch: pa.RecordBatch, source: Range) -> pa.RecordBatch:
        values = batch.column("value")
        decoded, errors = decoder.decode(values)
        if errors and self._options.fails:
            row = min(errors)
            place = f"{partition_label(source.topic, source.partition)}, offset {batch.column('offset')[row].as_py()}"
            raise BadValue(f"{place}, column value: {errors[row]}; value.onError=column goes on")
        columns = {name: batch.column(name) for name in batch.schema.names} | {"value": decoded.cast(self._type)}
        if self._options.has_column:
            columns[BAD] = _bad_column(values, errors)
        elif errors:
            self._put_aside(batch, errors, source)
            kept = pa.array([row not in errors for row in range(batch.num_rows)], pa.bool_())
            columns = {name: column.filter(kept) for name, column in columns.items()}
        arrays = [columns[name].cast(self._wanted.field(name).type) for name in self._wanted.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._wanted)

    def _put_aside(self, batch: pa.RecordBatch, errors: dict[int, str], source: Range) -> None:
        """Write bad records to the dead-letter topic, as they came, and with what is wrong in headers."""
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
