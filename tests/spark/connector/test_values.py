"""Values become columns: JSON, text, Avro and Protocol Buffers from real topics, with and without a registry."""

import base64
import datetime
import decimal
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.connector.avro_values import AvroDecoder
from ottla.spark.connector.data_source import OttlaDataSource
from ottla.spark.connector.ddl import InvalidDdl, parse_columns
from ottla.spark.connector.json_values import JsonDecoder, infer_type
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.protobuf_values import ProtobufDecoder
from ottla.spark.connector.spark_readers import RangesPartition
from ottla.spark.connector.values import BadValue
from tests.spark.clusters import Cluster
from tests.spark.connector.registries import SchemaRegistry, framed, serving

Rows = list[dict[str, Any]]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def topic_of(cluster: Cluster, values: Sequence[bytes | None]) -> str:
    topic = cluster.new_topic(1)
    producer = cluster.producer()
    for number, value in enumerate(values):
        producer.produce(topic, value, f"key-{number}".encode(), partition=0, headers=[("h", b"1")])
    assert producer.flush(30) == 0
    return topic


def read(cluster: Cluster, topic: str, **options: str) -> Rows:
    """Return the rows of a batch query, by the calls that Spark makes."""
    source = OttlaDataSource(cluster.options(subscribe=topic, **options))
    reader = source.reader(source.schema())
    rows: Rows = []
    for partition in reader.partitions():
        assert isinstance(partition, RangesPartition)
        for batch in reader.read(partition):
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


JSON = (b'{"id": 1, "price": 2.5}', b"no JSON", None, b'{"id": "x", "price": 1}', b'{"id": 2, "more": [1]}')
DDL = "id long, price double"


def test_json_is_read_into_columns_and_bad_values_into_the_column_bad(ottla: Cluster) -> None:
    rows = read(ottla, topic_of(ottla, JSON), value__format="json", value__schema=DDL)
    assert [row["value"] for row in rows] == [
        {"id": 1, "price": 2.5},
        None,
        None,
        None,
        {"id": 2, "price": None},
    ]
    assert [row["bad"] for row in rows] == [
        None,
        {"error": "not JSON: Invalid value", "value": b"no JSON"},
        None,
        {"error": "column id: changed from number to string", "value": JSON[3]},
        None,
    ]
    assert [row["offset"] for row in rows] == list(range(5))


def test_bad_values_go_to_the_dead_letter_topic_with_error_and_origin(ottla: Cluster) -> None:
    topic, dead = topic_of(ottla, JSON), ottla.new_topic(1)
    rows = read(ottla, topic, value__format="json", value__schema=DDL, value__deadLetterTopic=dead)
    assert [row["offset"] for row in rows] == [0, 2, 4]
    assert "bad" not in rows[0]
    records = ottla.consume(dead)
    assert [(row["key"], row["value"]) for row in records] == [(b"key-1", JSON[1]), (b"key-3", JSON[3])]
    assert {header["key"]: header["value"] for header in records[1]["headers"]} == {
        "h": b"1",
        "ottla.error": b"column id: changed from number to string",
        "ottla.topic": topic.encode(),
        "ottla.partition": b"0",
        "ottla.offset": b"3",
    }


def test_on_error_fail_reports_topic_partition_offset_and_column(ottla: Cluster) -> None:
    topic = topic_of(ottla, [JSON[0], JSON[3]])
    with pytest.raises(BadValue) as caught:
        read(ottla, topic, value__format="json", value__schema=DDL, value__onError="fail")
    assert str(caught.value) == (
        f"topic '{topic}', partition 0, offset 1: cannot decode the value: column id: changed from number to string. "
        "To continue with bad values in the column 'bad', set value.onError=column"
    )


def test_a_schema_is_inferred_from_the_first_records(ottla: Cluster) -> None:
    times = b'{"id": 3, "at": "2026-01-31T12:00:00Z", "of": {"x": [1.5]}}'
    topic = topic_of(ottla, [JSON[0], b"no JSON", times])
    rows = read(ottla, topic, value__format="json")
    assert rows[0]["value"] == {"id": 1, "price": 2.5, "at": None, "of": None}
    assert rows[2]["value"] == {"id": 3, "price": None, "at": "2026-01-31T12:00:00Z", "of": {"x": [1.5]}}
    assert rows[1]["bad"]["value"] == b"no JSON"
    with pytest.raises(OptionError, match=r"option value.schema: cannot be inferred, because there are no records"):
        read(ottla, ottla.new_topic(1), value__format="json")


def test_times_dates_and_decimals_are_read_from_json(ottla: Cluster) -> None:
    value = b'{"at": "2026-01-31T13:00:00+01:00", "on": "2026-01-31", "of": {"x": 1.25}}'
    ddl = "at timestamp, on date, of struct<x: decimal(6,2)>"
    rows = read(ottla, topic_of(ottla, [value, b'{"on": "soon"}']), value__format="json", value__schema=ddl)
    of = {"x": decimal.Decimal("1.25")}
    assert rows[0]["value"] == {"at": AT, "on": datetime.date(2026, 1, 31), "of": of}
    assert rows[1]["bad"]["error"].startswith("column on: ")


def test_text_must_be_utf_8(ottla: Cluster) -> None:
    rows = read(ottla, topic_of(ottla, ["größe".encode(), b"\xff", None]), value__format="string")
    assert [row["value"] for row in rows] == ["größe", None, None]
    assert rows[1]["bad"] == {"error": "not UTF-8: invalid start byte at byte 0", "value": b"\xff"}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abv"), inner))
TYPE = pa.struct([("a", pa.int64()), ("b", pa.struct([("a", pa.string())])), ("v", pa.list_(pa.float64()))])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.binary() | ANYTHING.map(lambda value: json.dumps(value).encode()), max_size=20))
def test_a_bad_value_does_not_affect_others(values: list[bytes | None]) -> None:
    decoder = JsonDecoder(TYPE)
    decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    decoded.validate(full=True)
    assert len(decoded) == len(values)
    for row, value in enumerate(values):
        alone, problem = decoder.decode(pa.array([value], pa.binary()))
        assert (errors.get(row), str(decoded[row])) == (problem.get(0), str(alone[0]))
    infer_type(pa.array(values, pa.binary()))


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        {"name": "ticket", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "other", "type": "Kind"},
    ],
}
AT = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
ORDER = {
    "id": 7,
    "customer": None,
    "at": AT,
    "price": decimal.Decimal("12.50"),
    "kind": "NEW",
    "lines": [{"a": 1}],
    "ticket": "x-1",
    "other": "OLD",
}


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_avro_is_read_with_a_given_schema(ottla: Cluster) -> None:
    plain = json.loads(json.dumps(AVRO).replace('"logicalType": "uuid"', '"doc": ""'))
    content = avro(plain, ORDER)
    topic = topic_of(ottla, [content, content[:-3], content + b"!", b"", None])
    rows = read(ottla, topic, value__format="avro", value__schema=json.dumps(AVRO))
    assert rows[0]["value"] == {**ORDER, "lines": [[("a", 1)]]}
    assert [row["value"] is None for row in rows] == [False, True, True, True, True]
    assert [row["bad"] is not None for row in rows] == [False, True, True, True, False]
    assert rows[2]["bad"]["error"] == "not Avro of this schema: the value ends 1 bytes before the end of the record"


def test_avro_of_a_registry_is_read_with_the_writers_schema(ottla: Cluster, registry: SchemaRegistry) -> None:
    old = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
    new = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "id", "type": "long"}, {"name": "more", "type": "string", "default": "none"}],
    }
    topic = ottla.new_topic(1)
    first = registry.register(f"{topic}-value", "AVRO", json.dumps(old))
    second = registry.register(f"{topic}-value", "AVRO", json.dumps(new))
    producer = ottla.producer()
    values = [
        framed(first, avro(old, {"id": 1, "gone": "x"})),
        framed(second, avro(new, {"id": 2, "more": "y"})),
        framed(99, b"\x00"),
        avro(new, {"id": 3, "more": "zzzz"}),
        b"\x00",
    ]
    for value in values * 10:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    rows = read(ottla, topic, value__format="avro", value__registry=registry.address)
    assert [row["value"] for row in rows[:3]] == [{"id": 1, "more": "none"}, {"id": 2, "more": "y"}, None]
    assert f"the registry at {registry.address} has no schema 99" in rows[2]["bad"]["error"]
    assert "not framed for a schema registry: the value begins with byte 6 instead of 0" in rows[3]["bad"]["error"]
    assert "not framed for a schema registry: the value has 1 bytes, a frame has 5" in rows[4]["bad"]["error"]
    assert registry.requests.count(f"/schemas/ids/{first}") == 1, "a process requests a schema once"


def test_errors_of_a_registry_are_reported_with_its_address(ottla: Cluster, registry: SchemaRegistry) -> None:
    topic = ottla.new_topic(1)
    with pytest.raises(OptionError, match=f"option value.subject: the registry at .* has no subject '{topic}-value'"):
        read(ottla, topic, value__format="avro", value__registry=registry.address)
    registry.register(f"{topic}-value", "JSON", "{}")
    with pytest.raises(
        OptionError, match=r"option value.format: avro does not match subject .*, which has a schema of type JSON"
    ):
        read(ottla, topic, value__format="avro", value__registry=registry.address)
    with pytest.raises(OptionError, match=r"option value.registry: http://127.0.0.1:1 cannot be reached: .*refused"):
        read(ottla, topic, value__format="avro", value__registry="http://127.0.0.1:1")
    registry.auth = "Basic " + base64.b64encode(b"me:secret").decode()
    with pytest.raises(OptionError, match="answers 401 Unauthorized"):
        read(ottla, topic, value__format="json", value__registry=registry.address)


def test_json_of_a_registry_has_the_columns_of_the_json_schema(ottla: Cluster, registry: SchemaRegistry) -> None:
    registry.auth = "Basic " + base64.b64encode(b"me:secret").decode()
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": ["array", "null"], "items": {"type": "string"}}},
    }
    number = registry.register("any-subject", "JSON", json.dumps(schema))
    topic = topic_of(ottla, [framed(number, b'{"id": 4, "tags": ["a"]}'), b'{"id": 5}', None])
    options = {"value__registry": registry.address, "value__registry__auth": "me:secret"}
    rows = read(ottla, topic, value__format="json", value__subject="any-subject", **options)
    assert [row["value"] for row in rows] == [{"id": 4, "tags": ["a"]}, None, None]
    assert "not framed for a schema registry" in rows[1]["bad"]["error"]
    assert rows[2]["bad"] is None


def shop_proto() -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor that protoc would write for a small file."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other").field.add(name="x", number=1, label=1, type=kinds.TYPE_INT32)
    order = file.message_type.add(name="Order")
    order.enum_type.add(name="Kind").value.add(name="NEW", number=0)
    order.enum_type[0].value.add(name="OLD", number=1)
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, label=1, type=kinds.TYPE_STRING)
    counts = order.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, label=1, type=kinds.TYPE_STRING)
    counts.field.add(name="value", number=2, label=1, type=kinds.TYPE_INT64)
    order.field.add(name="id", number=1, label=1, type=kinds.TYPE_INT64)
    order.field.add(name="note", number=2, label=1, type=kinds.TYPE_STRING, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_note")
    order.field.add(name="kind", number=3, label=1, type=kinds.TYPE_ENUM, type_name=".shop.Order.Kind")
    order.field.add(name="lines", number=4, label=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line")
    order.field.add(name="counts", number=5, label=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry")
    order.field.add(name="at", number=6, label=1, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    order.field.add(name="tags", number=7, label=3, type=kinds.TYPE_BYTES)
    order.field.add(name="big", number=8, label=1, type=kinds.TYPE_UINT64)
    return file


def order_message() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(shop_proto())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id=5, kind=1, big=2**64 - 1)
    order.lines.add(item="a")
    order.lines.add(item="b")
    order.counts["x"] = 3
    order.at.seconds = int(AT.timestamp())
    order.tags.append(b"t")
    return order


EXPECTED = {
    "id": 5,
    "note": None,
    "kind": "OLD",
    "lines": [{"item": "a"}, {"item": "b"}],
    "counts": [("x", 3)],
    "at": AT,
    "tags": [b"t"],
    "big": decimal.Decimal(2**64 - 1),
}


def test_protocol_buffers_are_read_with_given_descriptors(ottla: Cluster) -> None:
    files = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[shop_proto()]).SerializeToString()).decode()
    topic = topic_of(ottla, [order_message().SerializeToString(), b"\xff\xff", None, b""])
    options = {"value__format": "protobuf", "value__schema": files}
    rows = read(ottla, topic, value__message="shop.Order", **options)
    assert rows[0]["value"] == EXPECTED
    assert rows[1]["value"] is None
    assert rows[1]["bad"]["value"] == b"\xff\xff"
    assert rows[2]["bad"] is None
    assert rows[3]["value"]["id"] == 0, "empty bytes are a valid message"
    with pytest.raises(
        OptionError,
        match=r"value.message: the schema has no message 'Nothing'; its messages are shop.Other, shop.Order",
    ):
        read(ottla, topic, value__message="Nothing", **options)


def test_protocol_buffers_of_a_registry_have_message_indexes(ottla: Cluster, registry: SchemaRegistry) -> None:
    content = order_message().SerializeToString()
    file = base64.b64encode(shop_proto().SerializeToString()).decode()
    number = registry.register("orders", "PROTOBUF", file)
    # The second message of the file: one index, which is 1; numbers are written zigzag.
    topic = topic_of(ottla, [framed(number, b"\x02\x02" + content), framed(number, b"\x00" + content)])
    options = {"value__registry": registry.address, "value__subject": "orders", "value__message": "shop.Order"}
    rows = read(ottla, topic, value__format="protobuf", **options)
    assert rows[0]["value"] == EXPECTED
    assert rows[1]["bad"]["error"] == "it is message [0] of its schema, and shop.Order is message [1]"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_a_value_or_bad(values: list[bytes]) -> None:
    array = pa.array(values, pa.binary())
    files = descriptor_pb2.FileDescriptorSet(file=[shop_proto()]).SerializeToString()
    for decoder in (AvroDecoder(json.dumps(AVRO), None), ProtobufDecoder(files, "shop.Order", None)):
        decoded, errors = decoder.decode(array)
        decoded.validate(full=True)
        assert [decoded[row].is_valid for row in range(len(values))] == [
            row not in errors for row in range(len(values))
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "xml"}, "option value.format: 'xml' is not allowed; use one of binary, string, json, avro"),
        ({"value.format": "avro"}, "option value.schema: is missing; value.format=avro requires it or value.registry"),
        ({"value.schema": "a int"}, "option value.schema: has no effect with value.format=binary"),
        ({"value.format": "json", "value.schema": "a b c d"}, "option value.schema: 'a b c d' is not a schema such as"),
        (
            {"value.format": "json", "value.schema": "m map<string,int>"},
            "column value.m: maps cannot be read from JSON",
        ),
        ({"value.format": "avro", "value.schema": "{}"}, "option value.schema: is not an Avro schema"),
        (
            {"value.format": "avro", "value.schema": '["int", "string"]'},
            "column value: a union of 2 types has no column type",
        ),
        (
            {"value.format": "protobuf", "value.schema": "?"},
            "option value.schema: is neither the path of a descriptor set nor",
        ),
        ({"value.format": "json", "value.registry": "here"}, "option value.registry: 'here' is not a URL"),
        ({"value.format": "json", "value.subject": "s"}, "option value.subject: requires value.registry"),
        (
            {"value.format": "json", "value.onError": "deadLetter"},
            "option value.deadLetterTopic: is missing; value.onError=deadLetter requires it",
        ),
        ({"value.format": "string", "value.inferRecords": "3"}, "option value.inferRecords: has no effect with"),
    ],
)
def test_a_wrong_option_for_values_is_reported(ottla: Cluster, options: dict[str, str], message: str) -> None:
    given = {**ottla.options(subscribe="orders"), **options}
    with pytest.raises(OptionError) as caught:
        OttlaDataSource(given).schema()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("id long, price double", "struct<id:bigint,price:double>"),
        ("`a b` int not null comment 'x', c: decimal(12,2)", "struct<a b:int,c:decimal(12,2)>"),
        (
            "s struct<a: array<int>, m map<string, date>>, t timestamp",
            "struct<s:struct<a:array<int>,m:map<string,date>>,t:timestamp>",
        ),
    ],
)
def test_ddl_is_parsed_as_spark_parses_it(text: str, type_: str) -> None:
    assert parse_columns(text).simpleString() == type_


@pytest.mark.parametrize(
    "text", ["", "a", "a int b", "a int,", "a array<int", "a whatever", "a decimal(x)", "a int ?", ", a int"]
)
def test_invalid_ddl_is_rejected(text: str) -> None:
    with pytest.raises(InvalidDdl):
        parse_columns(text)
