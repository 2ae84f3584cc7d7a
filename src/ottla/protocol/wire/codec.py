"""Decode and encode declared messages.

The first use of a message in a version creates its reader and its writer, which are then kept.
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
    """The message is not declared in this version."""


def reader_of(cls: type, version: int) -> Reader:
    """Return the function that reads a message at a position of a view, and returns it and the position after it."""
    schema = schema_of(cls)
    if version not in schema.readers:
        check_version(schema, version)
        if Plan is None:
            schema.readers[version] = make_reader(schema, version)
        else:
            schema.readers[version], schema.writers[version] = make_codec(schema, version)
    return schema.readers[version]


def writer_of(cls: type, version: int) -> Writer:
    """Return the function that writes a message. It passes each chunk, in order, to the function that it is given."""
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
        raise UnsupportedVersion(f"{schema.name} has no version {version}, only {schema.versions}")


def is_flexible(cls: type, version: int) -> bool:
    """Return whether this version of the message has compact lengths and tagged fields."""
    return version in schema_of(cls).flexible


def decode_from(cls: type[T], version: int, buf: memoryview, pos: int = 0) -> tuple[T, int]:
    """Decode the message at `pos`. Return it and the position after it."""
    message: T
    message, pos = reader_of(cls, version)(buf, pos)
    return message, pos


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """Decode a message that fills `data`. Raise ProtocolError if bytes are left over."""
    buf = memoryview(data)
    message, pos = decode_from(cls, version, buf)
    if pos != len(buf):
        raise ProtocolError(
            f"{len(buf) - pos} bytes follow the message", position=pos, within=f"{cls.__name__} v{version}"
        )
    return message


def encode(message: Any, version: int) -> bytes:
    """Encode a message as one bytes object. Its record batches, if any, must be in memory."""
    chunks: list[Any] = []
    writer_of(type(message), version)(message, chunks.append)
    return b"".join(chunks)
