"""Malformed messages raise a ProtocolError that names the problem and the position, in bounded time and memory."""

import struct
import tracemalloc
from random import Random

import pytest
from bench.harness.message_values import Values
from bench.harness.mutations import mutations
from bench.harness.protocol_table import message_classes, message_versions

from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.produce import ProduceRequest
from ottla.protocol.wire.codec import UnsupportedVersion, decode, encode
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.generated_source import UnwritableError
from ottla.protocol.wire.reader_generator import MAX_TAGGED_FIELDS

INT32_MAX = 2**31 - 1


@pytest.mark.parametrize(("name", "version"), message_versions())
def test_a_message_truncated_at_any_byte_is_rejected(name: str, version: int) -> None:
    cls = message_classes()[name]
    values = Values(Random(f"{name} {version}"))
    written = min((encode(values.message(cls, version), version) for _ in range(6)), key=lambda b: abs(len(b) - 300))
    for size in range(len(written)):
        with pytest.raises(ProtocolError) as caught:
            decode(cls, version, written[:size])
        assert caught.value.position is not None
        assert caught.value.within == f"{cls.__name__} v{version}"


@pytest.mark.parametrize(("name", "version"), message_versions())
def test_mutated_bytes_are_read_or_rejected(name: str, version: int) -> None:
    cls = message_classes()[name]
    random = Random(f"mutated {name} {version}")
    written = encode(Values(random).message(cls, version), version)
    for mutated in mutations(written, random, 40):
        try:
            message: object = decode(cls, version, mutated)
        except ProtocolError:
            continue
        encode(message, version)


def test_the_error_names_the_field_and_the_byte() -> None:
    body = encode(MetadataRequest(), 9)
    with pytest.raises(ProtocolError, match=r"^allow_auto_topic_creation to tagged fields: ends too early") as caught:
        decode(MetadataRequest, 9, body[:1])
    assert (caught.value.position, caught.value.within) == (1, "MetadataRequest v9")
    assert str(caught.value).endswith("at byte 1 of MetadataRequest v9")


def test_the_error_names_a_field_inside_arrays() -> None:
    topics = struct.pack(">i", 1) + struct.pack(">h", 5) + b"\xff\xfe\xfd\xfc\xfb" + b"\x00"
    with pytest.raises(ProtocolError, match=r"topics\[\]\.name: invalid UTF-8") as caught:
        decode(MetadataRequest, 4, topics)
    assert caught.value.position == 6


def test_bytes_after_the_message_are_rejected() -> None:
    with pytest.raises(ProtocolError, match="2 bytes follow the message"):
        decode(RequestHeader, 1, encode(RequestHeader(client_id="a"), 1) + b"xy")


@pytest.mark.parametrize("length", [-2, -100, -(2**15)])
def test_negative_lengths_are_rejected(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"negative length {length}"):
        decode(RequestHeader, 1, struct.pack(">hhih", 3, 4, 7, length))


def test_a_length_beyond_the_frame_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="client_id: 900 bytes announced, 3 are left"):
        decode(RequestHeader, 1, struct.pack(">hhih", 3, 4, 7, 900) + b"abc")


def test_a_text_is_no_longer_than_the_old_encoding_allows() -> None:
    for size, is_refused in ((0x7FFF, False), (0x8000, True)):
        body = encode(ApiVersionsRequest(client_software_name="n" * size, client_software_version="1"), 3)
        if is_refused:
            with pytest.raises(ProtocolError, match="client_software_name: a text of 32768 bytes, at most 32767"):
                decode(ApiVersionsRequest, 3, body)
        else:
            assert decode(ApiVersionsRequest, 3, body).client_software_name == "n" * size


def test_an_invalid_null_is_rejected() -> None:
    with pytest.raises(ProtocolError, match=r"topics: is null"):
        decode(MetadataRequest, 0, struct.pack(">i", -1))


def read_in_vain(cls: type, version: int) -> None:
    """Create the reader and its fallback, which are created on first use."""
    with pytest.raises(ProtocolError):
        decode(cls, version, b"")


@pytest.mark.parametrize("count", [INT32_MAX, 2**30, 1_000_000])
def test_an_impossible_array_count_allocates_nothing(count: int) -> None:
    frame = struct.pack(">i", count) + bytes(1_000)
    read_in_vain(MetadataRequest, 4)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match=f"topics: {count} elements announced"):
        decode(MetadataRequest, 4, frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_an_impossible_compact_array_count_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="4294967294 elements announced"):
        decode(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(100))


def test_four_million_topics_are_rejected_before_they_are_decoded() -> None:
    body = struct.pack(">i", 4_000_000) + struct.pack(">h", 0) * 4_000_000
    read_in_vain(MetadataRequest, 0)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="4000000 elements, at most 262144 are allowed"):
            decode(MetadataRequest, 0, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_an_endless_varint_in_a_message_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="topics: varint"):
        decode(MetadataRequest, 9, b"\x80" * 1_000_000)


def test_too_many_tagged_fields_are_rejected_at_once() -> None:
    tags = b"".join(bytes((0x80 | tag & 0x7F, tag >> 7, 0)) for tag in range(128, 128 + MAX_TAGGED_FIELDS))
    header = struct.pack(">hhih", 3, 9, 7, -1)
    count = MAX_TAGGED_FIELDS
    read = decode(RequestHeader, 2, header + bytes((count & 0x7F | 0x80, count >> 7)) + tags)
    assert len(read.unknown_tags) == MAX_TAGGED_FIELDS  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match="20000000 tagged fields, at most 1000 are allowed"):
        decode(RequestHeader, 2, header + b"\x80\xda\xc4\x09" + tags * 10)


def test_tags_out_of_order_are_rejected() -> None:
    with pytest.raises(ProtocolError, match="tag 5 of 0 bytes after tag 9"):
        decode(RequestHeader, 2, struct.pack(">hhih", 3, 9, 7, -1) + b"\x02\x09\x00\x05\x00")


def test_a_tagged_value_must_fill_its_size() -> None:
    body = encode(FetchRequest(cluster_id="abc"), 12)
    assert body.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(ProtocolError, match="tagged fields: the value of tag 0 ended"):
        decode(FetchRequest, 12, body[:-7] + b"\x01\x00\x05\x04abcd")


def test_a_nullable_struct_is_marked_present_or_null() -> None:
    body = encode(DescribeTopicPartitionsRequest(), 0)
    assert body[-2:] == b"\xff\x00"
    with pytest.raises(ProtocolError, match=r"cursor: a struct is marked 1 or -1 \(null\), not 7"):
        decode(DescribeTopicPartitionsRequest, 0, body[:-2] + b"\x07\x00")


def test_an_undeclared_version_is_rejected() -> None:
    with pytest.raises(UnsupportedVersion, match="ProduceRequest has no version 2, only 3-13"):
        decode(ProduceRequest, 2, b"")


def test_unknown_tagged_fields_survive_a_round_trip() -> None:
    body = encode(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3)
    body = body[:-1] + b"\x02\x63\x03xyz\xc8\x01\x00"
    assert encode(decode(ApiVersionsRequest, 3, body), 3) == body


def test_an_unwritable_message_names_its_field() -> None:
    with pytest.raises(UnwritableError, match=r"MetadataRequest v0: topics cannot be written"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(UnwritableError, match=r"RequestHeader v1: request_api_key to client_id cannot be written"):
        encode(RequestHeader(request_api_key=100_000), 1)
