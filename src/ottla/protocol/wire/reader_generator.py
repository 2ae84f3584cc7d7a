"""Generates the reader of a message in one version: straight-line Python over a memoryview.

The generated `run(buf, pos)` returns the message and the position after it. For anything but a valid message it raises
a ProtocolError that names the field and the byte. The bytes in the buffer bound what it allocates: an array's count
must not exceed the number of smallest elements that the rest of the buffer can hold, nor MAX_ELEMENTS.
"""

import struct
from typing import Any

from ottla.protocol.wire.declare import Reader, Schema
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.generated_source import Malformed, Run, Source, malformed
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve, smallest_size
from ottla.protocol.wire.types import ZERO_UUID, Fixed
from ottla.protocol.wire.varint import read_uvarint

MAX_TAGGED_FIELDS = 1_000
"""The most tagged fields that a struct may have. No struct of Kafka declares more than nine."""

MAX_ELEMENTS = 1 << 18
"""The most structs or texts that an array may have. As objects, they take fifty times as many bytes as on the wire."""

MAX_TEXT_BYTES = 0x7FFF
"""The longest text in any encoding. The non-compact encoding has no room for a larger length."""

PLAIN_NULL, TAGGED_NULL = -1, 0
"""The marks of a nullable struct that is null: in plain fields and in tagged fields. 1 marks it as present."""

BYTE = Fixed("B", 1, "uint8")
PLAIN_LENGTH = {Text: Fixed("h", 2, "int16"), Blob: Fixed("i", 4, "int32"), Array: Fixed("i", 4, "int32")}


def tag_count(count: int, buf: memoryview, pos: int) -> tuple[int, int]:
    """Return how many tagged fields follow. `count` is the first byte of that number, which the caller has read."""
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    if count > MAX_TAGGED_FIELDS:
        raise Malformed(f"{count} tagged fields, at most {MAX_TAGGED_FIELDS} are allowed")
    return count, pos


def tag_bounds(last: int, buf: memoryview, pos: int, end: int) -> tuple[int, int, int]:
    """Return the next tag, the position of its value, and the position at which the value must end."""
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    if pos + size > end or tag <= last:
        raise Malformed(f"tag {tag} of {size} bytes after tag {last}, with {end - pos} bytes left")
    return tag, pos, pos + size


def keep_tag(struct: Any, tag: int, buf: memoryview, pos: int, close: int) -> int:
    """Keep the bytes of an unknown tagged field, so that the writer can write it unchanged."""
    if struct.unknown_tags is None:
        struct.unknown_tags = {}
    struct.unknown_tags[tag] = bytes(buf[pos:close])
    return close


def unknown_tags(struct: Any, count: int, buf: memoryview, pos: int, end: int) -> int:
    """Read the tagged fields of a struct that declares none."""
    count, pos = tag_count(count, buf, pos)
    tag = -1
    for _ in range(count):
        tag, pos, close = tag_bounds(tag, buf, pos, end)
        pos = keep_tag(struct, tag, buf, pos, close)
    return pos


def make_reader(schema: Schema, version: int) -> Reader:
    return _Reader(schema, version).make()


class _Reader:
    def __init__(self, schema: Schema, version: int) -> None:
        names = {
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "uvarint": read_uvarint,
            "tag_count": tag_count,
            "tag_bounds": tag_bounds,
            "keep_tag": keep_tag,
            "unknown_tags": unknown_tags,
            "Malformed": Malformed,
            "malformed": malformed,
            "ZERO_UUID": ZERO_UUID,
            "CAUGHT": (IndexError, struct.error, UnicodeDecodeError, Malformed, ProtocolError),
            "TITLE": f"{schema.name} v{version}",
        }
        self.source = Source(f"<{schema.name} v{version} reader>", names)
        self.helpers = self.source.sibling()
        self.shape = resolve(schema, version)
        self.run = Run()

    def make(self) -> Reader:
        line = self.source.line
        line(0, "def run(buf, pos):", "")
        line(1, "end = len(buf)", "")
        line(1, "try:", "")
        self._open(2, "message", self.shape)
        self._struct(2, "message", self.shape, "")
        line(2, "return message, pos", "")
        line(1, "except CAUGHT as error:", "")
        line(2, "raise malformed(error, TITLE, *where(error), end) from None", "")
        self.source.extend(self.helpers)
        return self.source.compile()

    def _open(self, depth: int, var: str, shape: Struct) -> None:
        """Create the object, with the defaults of the fields that this version lacks."""
        self.source.line(depth, f"{var} = new({self.source.expose(shape.cls)})", "")
        for member in shape.absent:
            self.source.line(depth, f"{var}.{member.name} = {self._default(member)}", "")

    def _struct(self, depth: int, var: str, shape: Struct, path: str) -> None:
        for member in shape.plain:
            where = f"{path}{member.name}"
            self._value(depth, f"{var}.{member.name}", member.shape, member.nullable, member.compact, where)
        if not shape.flexible:
            self._flush(depth)
            self.source.line(depth, f"{var}.unknown_tags = None", path)
            return
        count = self.source.unique("n")
        self.run.add(count, BYTE, f"{path}tagged fields")
        self._flush(depth)
        for member in shape.tagged:
            self.source.line(depth, f"{var}.{member.name} = {self._default(member)}", "")
        self.source.line(depth, f"{var}.unknown_tags = None", "")
        self.source.line(depth, f"if {count}:", path)
        helper = self._tag_reader(shape, path) if shape.tagged else "unknown_tags"
        self.source.line(depth + 1, f"pos = {helper}({var}, {count}, buf, pos, end)", f"{path}tagged fields")

    def _value(
        self,
        depth: int,
        target: str,
        shape: Shape,
        nullable: bool,
        compact: bool,
        path: str,
        *,
        null: int = PLAIN_NULL,
    ) -> None:
        match shape:
            case Fixed():
                self.run.add(target, shape, path)
            case Struct():
                self._nested(depth, target, shape, nullable, path, null)
            case _:
                self._sized(depth, target, shape, nullable, compact, path)

    def _nested(self, depth: int, target: str, shape: Struct, nullable: bool, path: str, null: int) -> None:
        if nullable:
            flag = self.source.unique("n")
            self.run.add(flag, Fixed("b", 1, "int8"), path)
            self._flush(depth)
            self.source.line(depth, f"if {flag} == {null}:", path)
            self.source.line(depth + 1, f"{target} = None", path)
            self.source.line(depth, f"elif {flag} != 1:", path)
            self.source.line(
                depth + 1, f"raise Malformed(f'a struct is marked 1 or {null} (null), not {{{flag}}}')", path
            )
            self.source.line(depth, "else:", path)
            depth += 1
        else:
            self._flush(depth)
        var = self.source.unique("o")
        self._open(depth, var, shape)
        self._struct(depth, var, shape, f"{path}.")
        self.source.line(depth, f"{target} = {var}", path)

    def _sized(
        self, depth: int, target: str, shape: Text | Blob | Array, nullable: bool, compact: bool, path: str
    ) -> None:
        """Read a length or count, and its value. A compact length is stored plus one, because 0 means null."""
        line = self.source.line
        count = self.source.unique("n")
        self.run.add(count, BYTE if compact else PLAIN_LENGTH[type(shape)], path)
        self._flush(depth)
        if compact:
            line(depth, f"if {count} > 127:", path)
            line(depth + 1, f"{count}, pos = uvarint(buf, pos - 1)", path)
            if isinstance(shape, Text):
                line(depth + 1, f"if {count} > {MAX_TEXT_BYTES + 1}:", path)
                line(depth + 2, f"raise Malformed(f'a text of {{{count} - 1}} bytes, at most {MAX_TEXT_BYTES}')", path)
        size = f"{count} - 1" if compact else count
        line(depth, f"if {count}{'' if compact else ' >= 0'}:", path)
        if isinstance(shape, Array):
            self._array(depth + 1, target, shape, compact, size, path)
        else:
            line(depth + 1, f"stop = pos + {size}", path)
            line(depth + 1, "if stop > end:", path)
            line(depth + 2, f"raise Malformed(f'{{{size}}} bytes announced, {{end - pos}} are left')", path)
            taken = 'str(buf[pos:stop], "utf-8")' if isinstance(shape, Text) else "bytes(buf[pos:stop])"
            if isinstance(shape, Blob) and shape.records:
                taken = "buf[pos:stop]"
            line(depth + 1, f"{target} = {taken}", path)
            line(depth + 1, "pos = stop", path)
        if nullable:
            line(depth, f"elif {size} == -1:", path)
            line(depth + 1, f"{target} = None", path)
        line(depth, "else:", path)
        line(depth + 1, f"raise Malformed('is null' if {size} == -1 else f'negative length {{{size}}}')", path)

    def _array(self, depth: int, target: str, shape: Array, compact: bool, count: str, path: str) -> None:
        line = self.source.line
        element = shape.element
        least = smallest_size(element, compact)
        assert least > 0, f"{path}: an array of empty elements would have no bound"
        line(depth, f"if ({count}) * {least} > end - pos:", path)
        line(depth + 1, f"raise Malformed(f'{{{count}}} elements announced, {{end - pos}} bytes are left')", path)
        if isinstance(element, Fixed):
            letters = f"'{element.format}' * ({count})" if element.size == 16 else f"f'{{{count}}}{element.format}'"
            line(depth, f"{target} = list(unpack_from('>' + {letters}, buf, pos))", path)
            line(depth, f"pos += ({count}) * {element.size}", path)
            return
        line(depth, f"if ({count}) > {MAX_ELEMENTS}:", path)
        line(depth + 1, f"raise Malformed(f'{{{count}}} elements, at most {MAX_ELEMENTS} are allowed')", path)
        values, add, one = self.source.unique("v"), self.source.unique("add"), self.source.unique("o")
        line(depth, f"{values} = {target} = []", path)
        line(depth, f"{add} = {values}.append", path)
        line(depth, f"for _ in range({count}):", path)
        if isinstance(element, Struct):
            self._open(depth + 1, one, element)
            self._struct(depth + 1, one, element, f"{path}[].")
        else:
            self._value(depth + 1, one, element, False, compact, f"{path}[]")
        line(depth + 1, f"{add}({one})", path)

    def _tag_reader(self, shape: Struct, path: str) -> str:
        """Generate a separate function for the tagged fields, which most structs arrive without."""
        outer, self.source = self.source, self.source.sibling()
        helper = self.source.unique("tags")
        line = self.source.line
        where = f"{path}tagged fields"
        line(0, f"def {helper}(struct, count, buf, pos, end):", where)
        line(1, "count, pos = tag_count(count, buf, pos)", where)
        line(1, "last = -1", where)
        line(1, "for _ in range(count):", where)
        line(2, "last, pos, close = tag_bounds(last, buf, pos, end)", where)
        for position, member in enumerate(shape.tagged):
            line(2, f"{'if' if position == 0 else 'elif'} last == {member.tag}:", where)
            target, within = f"struct.{member.name}", f"{path}{member.name}"
            self._value(3, target, member.shape, member.nullable, member.compact, within, null=TAGGED_NULL)
            self._flush(3)
        line(2, "else:", where)
        line(3, "pos = keep_tag(struct, last, buf, pos, close)", where)
        line(2, "if pos != close:", where)
        line(3, "raise Malformed(f'the value of tag {last} ended {pos - close} bytes off its size')", where)
        line(1, "return pos", where)
        self.helpers.extend(self.source)
        self.source = outer
        return helper

    def _flush(self, depth: int) -> None:
        if not self.run.parts:
            return
        letters, packed = self.run.struct()
        path = self.run.path()
        if self.run.format == ">B":
            self.source.line(depth, f"{self.run.parts[0]} = buf[pos]", path)
        else:
            unpack = self.source.name(f"unpack_{letters}", packed.unpack_from)
            self.source.line(depth, f"{', '.join(self.run.parts)}, = {unpack}(buf, pos)", path)
        self.source.line(depth, f"pos += {packed.size}", path)
        self.run = Run()

    def _default(self, member: Member) -> str:
        field = member.field
        if field.factory is list:
            return "[]"
        if field.factory is not None:
            return f"{self.source.expose(field.factory)}()"
        return "ZERO_UUID" if field.default is ZERO_UUID else repr(field.default)
