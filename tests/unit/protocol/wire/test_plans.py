"""The compiled codec and generated Python agree on every message in every version, and on malformed bytes."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from bench.harness.message_values import Values
from bench.harness.mutations import mutations
from bench.harness.protocol_table import message_classes, message_versions

from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.rpc.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.codec import encode, reader_of, writer_of
from ottla.protocol.wire.declare import Reader, schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.generated_source import UnwritableError
from ottla.protocol.wire.plans import Plan, make_codec
from ottla.protocol.wire.reader_generator import make_reader
from ottla.protocol.wire.shape import Member
from ottla.protocol.wire.writer_generator import make_writer

pytestmark = pytest.mark.skipif(Plan is None, reason="the package was built without its compiled part")

MESSAGES, MUTATIONS = 6, 25


class Untagged(Values):
    """Messages without tagged fields, as nearly all are."""

    def member(self, member: Member, depth: int) -> Any:
        return member.field.make_default() if member.field.tag is not None else super().member(member, depth)


class Fallen(Exception):
    """The compiled codec fell back to the generated one."""


def fall(*given: object) -> Any:
    raise Fallen


def outcome(read: Reader, data: bytes) -> object:
    try:
        return read(memoryview(data), 0)
    except ProtocolError as error:
        return str(error)


@pytest.mark.parametrize(("name", "version"), message_versions())
def test_compiled_and_generated_codecs_agree(name: str, version: int) -> None:
    cls, random = message_classes()[name], Random(f"{name} {version}")
    read, write = make_reader(schema_of(cls), version), make_writer(schema_of(cls), version)
    for number in range(MESSAGES):
        values = (Untagged(random, unknown_tags=False), Values(random))[number % 2]
        message = values.message(cls, version)
        ours: list[Any] = []
        theirs: list[Any] = []
        writer_of(cls, version)(message, ours.append)
        write(message, theirs.append)
        data = b"".join(theirs)
        assert b"".join(ours) == data
        for changed in (data, *mutations(data, random, MUTATIONS)):
            actual, expected = outcome(reader_of(cls, version), changed), outcome(read, changed)
            # NaN does not equal itself.
            assert actual == expected or ("nan" in repr(expected) and repr(actual) == repr(expected))


@pytest.mark.parametrize(("name", "version"), message_versions())
def test_messages_without_tagged_fields_never_fall_back_to_python(
    name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would compare Python with itself."""
    monkeypatch.setattr("ottla.protocol.wire.plans.make_reader", lambda *given: fall)
    monkeypatch.setattr("ottla.protocol.wire.plans.make_writer", lambda *given: fall)
    cls, random = message_classes()[name], Random(f"{name} {version}")
    read, write = make_codec(schema_of(cls), version)
    for _ in range(3):
        message = Untagged(random, unknown_tags=False).message(cls, version)
        chunks: list[Any] = []
        write(message, chunks.append)
        data = b"".join(chunks)
        assert read(memoryview(data), 0) == (message, len(data))


def test_records_are_views_of_the_frame_and_are_written_without_a_copy() -> None:
    part = PartitionProduceData(index=3, records=b"abc" * 50)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[part])])
    frame = bytearray(b"head" + encode(request, 12))
    message, _ = reader_of(ProduceRequest, 12)(memoryview(frame), 4)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame

    class Stored:
        def __len__(self) -> int:
            return 1_000_000

    stored = Stored()
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=stored)])])
    chunks: list[Any] = []
    writer_of(FetchResponse, 12)(answer, chunks.append)
    assert [chunk for chunk in chunks if chunk is stored] == [stored]
    assert len(chunks) == 3


def test_an_unwritable_message_raises() -> None:
    chunks: list[Any] = []
    topics: Any
    for topics in ([MetadataRequestTopic(name=None)], [MetadataRequestTopic(name=5)], [None], 7):  # type: ignore[arg-type]
        with pytest.raises(UnwritableError, match="MetadataRequest v4"):
            writer_of(MetadataRequest, 4)(MetadataRequest(topics=topics), chunks.append)
    with pytest.raises(UnwritableError, match="acks"):
        writer_of(ProduceRequest, 9)(ProduceRequest(acks=1 << 15), chunks.append)


def test_an_error_of_the_chunk_receiver_is_propagated() -> None:
    def refuse(chunk: object) -> None:
        raise KeyError(chunk)

    with pytest.raises(KeyError):
        writer_of(ApiVersionsRequest, 3)(ApiVersionsRequest(), refuse)


def test_positions_outside_the_buffer_are_rejected() -> None:
    read = reader_of(MetadataRequest, 4)
    for position in (5, 100):
        with pytest.raises(ProtocolError):
            read(memoryview(b"\x00\x00\x00\x00\x01"), position)
    with pytest.raises(TypeError):
        read(memoryview(b""), None)  # type: ignore[arg-type]


class Truth:
    """A value of a boolean field whose truth value runs Python code."""

    def __init__(self, decide: Callable[[], bool]) -> None:
        self._decide = decide

    def __bool__(self) -> bool:
        return self._decide()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_or_a_memory_error_is_propagated(error: type[BaseException]) -> None:
    looks: list[None] = []

    def fail() -> bool:
        looks.append(None)
        raise error

    topic: Any = MetadataResponseTopic(name="orders", is_internal=Truth(fail))  # type: ignore[arg-type]
    with pytest.raises(error):
        writer_of(MetadataResponse, 1)(MetadataResponse(topics=[topic]), lambda chunk: None)
    assert len(looks) == 1, "the generated Python tried again"


def test_a_list_may_shrink_while_it_is_written() -> None:
    topics: list[Any] = []

    def clear() -> bool:
        topics.clear()
        return True

    topics += [MetadataResponseTopic(name="orders", is_internal=Truth(clear)) for _ in range(3)]  # type: ignore[arg-type]
    chunks: list[Any] = []
    writer_of(MetadataResponse, 1)(MetadataResponse(topics=topics), chunks.append)
    assert b"".join(chunks) == encode(MetadataResponse(), 1)
