"""Reading and writing declared messages: `decode`, `encode`, and the functions under them.

A reader and a writer are made on the first use of a message in a version, and kept.
"""

from typing import Any, TypeVar

from ottla.protocol.wire.declare import Reader, Schema, Writer, schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.plans import Plan, make_codec
from ottla.protocol.wire.reader_generator import make_reader
from ottla.protocol.wire.varint import Buffer
from ottla.protocol.wire.writer_generator import make_writer

T = TypeVar("T")


class UnsupportedVersion(ProtocolError):
    """A version that the message was never declared in."""


def reader_of(cls: type, version: int) -> Reader:
    """The reader: takes a view and a position, gives the message and the position behind it."""
    schema = schema_of(cls)
    if version not in schema.readers:
        check_version(schema, version)
        if Plan is None:
            schema.readers[version] = make_reader(schema, version)
        else:
            schema.readers[version], schema.writers[version] = make_codec(schema, version)
    return schema.readers[version]


def writer_of(cls: type, version: int) -> Writer:
    """The writer: takes a message and a function that it calls with each chunk in order."""
    schema = schema_of(cls)
    if version not in schema.writers:
        check_version(schema, version)
        if Plan is None:
            schema.writers[version] = make_writer(schema, version)
        else:
            schema.readers[version], schema.writers[version] = make_codec(schema, version)
    return schema.writers[version]


def check_version(schema: Schema, version: int) -> None:
    if version not in schema.versions:
        raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")


def is_flexible(cls: type, version: int) -> bool:
    """Whether this version of the message has compact lengths and tagged fields."""
    return version in schema_of(cls).flexible


def decode_from(cls: type[T], version: int, buf: memoryview, pos: int = 0) -> tuple[T, int]:
    """The message that starts at `pos`, and the position behind it."""
    message: T
    message, pos = reader_of(cls, version)(buf, pos)
    return message, pos


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """The message that `data` is, to its last byte."""
    buf = memoryview(data)
    message, pos = decode_from(cls, version, buf)
    if pos != len(buf):
        raise ProtocolError(
            f"{len(buf) - pos} bytes follow the message", position=pos, within=f"{cls.__name__} v{version}"
        )
    return message


def encode(message: Any, version: int) -> bytes:
    """The message as one bytes object; for messages whose record batches, if any, are in memory."""
    chunks: list[Any] = []
    writer_of(type(message), version)(message, chunks.append)
    return b"".join(chunks)
