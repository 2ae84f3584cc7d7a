"""The types that message fields are declared with.

Each alias is an ordinary Python type to handlers and to the type checker; what it is on the wire hangs on it as
metadata that only the codec reads. `str`, `bool`, `bytes`, `list[...]` and `... | None` mean what they say.
"""

from typing import Annotated, Protocol, TypeAlias


class Fixed:
    """A value of fixed width: one letter of a `struct` format, the bytes it takes, its name in Kafka's schemas."""

    __slots__ = ("format", "name", "size")

    def __init__(self, format_: str, size: int, name: str) -> None:
        self.format = format_
        self.size = size
        self.name = name


class RecordsMark:
    """Marks record batches: read as a view into the frame, written without being copied."""


class Stored(Protocol):
    """Record batches that lie elsewhere, such as in a file: the codec writes their length, the network sends them."""

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
"""One piece of an encoded message; in order, they are the message."""
