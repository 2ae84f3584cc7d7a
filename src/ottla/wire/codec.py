"""Reading and writing declared messages: `decode`, `encode`, and the compiled functions under them.

A reader and a writer are compiled on the first use of a message in a version, and kept.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.wire.declare import Schema, schema_of
from ottla.wire.errors import ProtocolError
from ottla.wire.reading import make_reader
from ottla.wire.types import Chunk
from ottla.wire.varint import Buffer
from ottla.wire.writing import make_writer

T = TypeVar("T")


class UnsupportedVersion(ProtocolError):
    """A version that the message was never declared in."""


class Codec:
    """The compiled reader and writer of one message in one version; each half is made when it is first asked for."""

    __slots__ = ("_schema", "_version", "read", "write")

    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self.read: Callable[[memoryview, int], tuple[Any, int]] = self._first_read
        self.write: Callable[[Any, Callable[[Chunk], None]], None] = self._first_write

    def _first_read(self, buf: memoryview, pos: int) -> tuple[Any, int]:
        self.read = make_reader(self._schema, self._version)
        return self.read(buf, pos)

    def _first_write(self, message: Any, add: Callable[[Chunk], None]) -> None:
        self.write = make_writer(self._schema, self._version)
        self.write(message, add)


def codec_of(cls: type, version: int) -> Codec:
    schema = schema_of(cls)
    codec = schema.codecs.get(version)
    if codec is None:
        if version not in schema.versions:
            raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")
        codec = schema.codecs[version] = Codec(schema, version)
    assert isinstance(codec, Codec)
    return codec


def is_flexible(cls: type, version: int) -> bool:
    """Whether this version of the message has compact lengths and tagged fields."""
    return version in schema_of(cls).flexible


def decode_from(cls: type[T], version: int, buf: memoryview, pos: int = 0) -> tuple[T, int]:
    """The message that starts at `pos`, and the position behind it."""
    message: T
    message, pos = codec_of(cls, version).read(buf, pos)
    return message, pos


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """The message that `data` is, to its last byte."""
    buf = memoryview(data)
    message, pos = decode_from(cls, version, buf)
    if pos != len(buf):
        raise ProtocolError(f"{len(buf) - pos} bytes follow the message", at=pos, of=f"{cls.__name__} v{version}")
    return message


def encode_to(message: Any, version: int, chunks: list[Chunk]) -> None:
    """Append the message's chunks; record batches stay the objects they are."""
    codec_of(type(message), version).write(message, chunks.append)


def encode(message: Any, version: int) -> bytes:
    """The message as one bytes object; for messages whose record batches, if any, are in memory."""
    chunks: list[Any] = []
    codec_of(type(message), version).write(message, chunks.append)
    return b"".join(chunks)
