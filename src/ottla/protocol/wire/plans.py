"""Plans for the compiled codec: the layout of a message in one version, in the form that `_codec.c` takes.

If that module was built, it reads and writes nearly every message. It leaves malformed bytes, tagged fields and
unwritable values to the Python that `reader_generator` and `writer_generator` generate on first use. Without the
compiled module everything works the same, but slower.
"""

from typing import Any

from ottla.protocol.wire.declare import Reader, Schema, Writer
from ottla.protocol.wire.reader_generator import make_reader
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve, smallest_size
from ottla.protocol.wire.types import Fixed
from ottla.protocol.wire.writer_generator import make_writer

try:
    from ottla.protocol.wire._codec import Plan as _Plan
except ImportError:
    _Plan = None  # type: ignore[assignment,misc]

Plan: "type[_Plan] | None" = _Plan
"""The compiled codec, or None if it was not built."""

_UUID_BYTES = 16


def make_codec(schema: Schema, version: int) -> tuple[Reader, Writer]:
    """Return the compiled reader and writer of a message in one version."""
    plan = _plan(resolve(schema, version), _Generated(schema, version))
    return plan.read, plan.write


class _Generated:
    """The generated reader and writer that the compiled codec falls back to, each generated on its first call."""

    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._reader: Reader | None = None
        self._writer: Writer | None = None

    def read(self, view: memoryview, position: int) -> tuple[Any, int]:
        if self._reader is None:
            self._reader = make_reader(self._schema, self._version)
        return self._reader(view, position)

    def write(self, message: Any, add: Any) -> None:
        if self._writer is None:
            self._writer = make_writer(self._schema, self._version)
        self._writer(message, add)


def _plan(shape: Struct, slow: _Generated) -> "_Plan":
    assert Plan is not None, "there is no compiled codec"
    return Plan(
        shape.cls,
        shape.flexible,
        tuple(_field(member, slow, is_read=True) for member in shape.plain),
        tuple(_field(member, slow, is_read=False) for member in shape.tagged),
        tuple(_field(member, slow, is_read=False) for member in shape.absent),
        slow.read,
        slow.write,
    )


def _field(member: Member, slow: _Generated, *, is_read: bool) -> tuple[Any, ...]:
    """Return name, value, kind of the default and default. The plan reads plain fields; others get their defaults."""
    value = _value(member.shape, slow, nullable=member.nullable, compact=member.compact) if is_read else None
    field = member.field
    if field.factory is list:
        return member.name, value, "l", None
    if field.factory is not None:
        return member.name, value, "m", field.factory
    return member.name, value, "c", field.default


def _value(shape: Shape, slow: _Generated, *, nullable: bool, compact: bool) -> tuple[Any, ...]:
    """Return kind, nullable, compact, an element's smallest size, and the element of an array or plan of a struct."""
    match shape:
        case Fixed():
            return "u" if shape.size == _UUID_BYTES else shape.format, nullable, compact, 0, None
        case Text():
            return "T", nullable, compact, 0, None
        case Blob():
            return "R" if shape.records else "B", nullable, compact, 0, None
        case Array():
            least = smallest_size(shape.element, compact)
            return "A", nullable, compact, least, _value(shape.element, slow, nullable=False, compact=compact)
        case Struct():
            return "S", nullable, compact, 0, _plan(shape, slow)
