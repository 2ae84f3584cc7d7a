"""The types that message fields are declared with.

To handlers and the type checker, each alias is an ordinary Python type. Its wire format is metadata that only the codec
reads. `str`, `bool`, `bytes`, `list[...]` and `... | None` need no alias.
"""

from typing import Annotated, Protocol, TypeAlias


class Fixed:
    """A value of fixed width: its letter in a `struct` format, its size in bytes, its name in Kafka's schemas."""

    __slots__ = ("format", "name", "size")

    def __init__(self, format_: str, size: int, name: str) -> None:
        self.format = format_
        self.size = size
        self.name = name


class RecordsMark:
    """Marks record batches, which are read as a view into the frame and written without a copy."""


class Stored(Protocol):
    """Record batches stored elsewhere, such as in a file. The codec writes their length; the network sends them."""

    def __len__(self) -> int: ...


Int8: TypeAlias = Annotated[int, Fixed("b", 1, "int8")]
Int16: TypeAlias = Annotated[int, Fixed("h", 2, "int16")]
Int32: TypeAlias = Annotated[int, Fixed("i", 4, "int32")]
Int64: TypeAlias = Annotated[int, Fixed("q", 8, "int64")]
UInt16: TypeAlias = Annotated[int, Fixed("H", 2, "uint16")]
Float64: TypeAlias = Annotated[float, Fixed("d", 8, "float64")]
Uuid: TypeAlias = Annotated[bytes, Fixed("16s", 16, "uuid")]
Records: TypeAlias = Annotated[bytes | bytearray | memoryview | Stored, RecordsMark()]

BOOLEAN = Fixed("?", 1, "boolean")
ZERO_UUID: Uuid = bytes(16)

Chunk: TypeAlias = bytes | bytearray | memoryview | Stored
"""One piece of an encoded message. The pieces in order are the message."""
