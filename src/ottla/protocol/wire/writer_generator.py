"""Generates the writer of a message in one version: straight-line Python that emits chunks.

The generated `run(message, add)` calls `add` with the chunks in order. It passes record batches on unchanged, so a
range of a file stays a range until the network layer sends it. It skips the fields that the version lacks.
"""

import struct
from collections.abc import Callable
from typing import Any

from ottla.protocol.wire.declare import Schema, Writer
from ottla.protocol.wire.generated_source import Run, Source, UnwritableError
from ottla.protocol.wire.reader_generator import PLAIN_LENGTH, PLAIN_NULL, TAGGED_NULL
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve
from ottla.protocol.wire.types import ZERO_UUID, Chunk, Fixed
from ottla.protocol.wire.varint import ONE_BYTE, write_uvarint


def make_writer(schema: Schema, version: int) -> Writer:
    return _Writer(schema, version).make()


def put_tags(tags: list[tuple[int, bytes]], add: Callable[[Chunk], None]) -> None:
    tags.sort()
    add(write_uvarint(len(tags)))
    for tag, data in tags:
        add(write_uvarint(tag))
        add(write_uvarint(len(data)))
        add(data)


def unknown_tags(struct: Any, add: Callable[[Chunk], None]) -> None:
    """Write the tagged fields of a struct that declares none, unchanged."""
    put_tags(list(struct.unknown_tags.items()), add)


def _unwritable(error: Exception, title: str, path: str, _pos: int) -> UnwritableError:
    return UnwritableError(f"{title}: {path or 'the message'} cannot be written: {error}")


class _Writer:
    def __init__(self, schema: Schema, version: int) -> None:
        names = {
            "pack": struct.pack,
            "uvarint": write_uvarint,
            "one_byte": ONE_BYTE,
            "put_tags": put_tags,
            "unknown_tags": unknown_tags,
            "unwritable": _unwritable,
            "ZERO_UUID": ZERO_UUID,
            "NOT_WRITTEN": object(),
            "CAUGHT": (struct.error, AttributeError, TypeError, ValueError),
            "TITLE": f"{schema.name} v{version}",
        }
        self.source = Source(f"<{schema.name} v{version} writer>", names)
        self.helpers = self.source.sibling()
        self.shape = resolve(schema, version)
        self.run = Run()
        self.shared: list[str] = []
        """Variables that hold a value of the previous struct."""

    def make(self) -> Writer:
        line = self.source.line
        line(0, "def run(message, add):", "")
        line(1, "try:", "")
        self._struct(2, "message", self.shape, "")
        if len(self.source.lines) == 2:
            line(2, "pass", "")
        line(1, "except CAUGHT as error:", "")
        line(2, "raise unwritable(error, TITLE, *where(error)) from error", "")
        unset = "".join(f", {name}=NOT_WRITTEN" for name in self.shared)
        self.source.lines[0] = f"def run(message, add{unset}):"
        self.source.extend(self.helpers)
        return self.source.compile()

    def _struct(self, depth: int, var: str, shape: Struct, path: str) -> None:
        for member in shape.plain:
            where = f"{path}{member.name}"
            if member.field.shared:
                self._shared(depth, f"{var}.{member.name}", member, where)
            else:
                self._value(depth, f"{var}.{member.name}", member.shape, member.nullable, member.compact, where)
        if not shape.flexible:
            self._flush(depth)
            return
        where = f"{path}tagged fields"
        absent = [self._is_default(f"{var}.{member.name}", member) for member in shape.tagged]
        self.source.line(depth, f"if {' and '.join([*absent, f'{var}.unknown_tags is None'])}:", where)
        self._emit(depth + 1, "x", [], where)
        self.source.line(depth, "else:", where)
        if self.run.parts:
            self._emit(depth + 1, "", [], where)
        helper = self._tag_writer(shape, path) if shape.tagged else "unknown_tags"
        self.source.line(depth + 1, f"{helper}({var}, add)", where)
        self.run = Run()

    def _is_default(self, value: str, member: Member) -> str:
        field = member.field
        if field.factory is list:
            return f"({value} is not None and not {value})" if member.nullable else f"not {value}"
        if field.factory is not None:
            return f"{value} == {self._default_struct(field.factory())}"
        if field.default is None:
            return f"{value} is None"
        return f"{value} == {'ZERO_UUID' if field.default is ZERO_UUID else repr(field.default)}"

    def _default_struct(self, default: Any) -> str:
        return self.source.name(f"default_{type(default).__name__}", default)

    def _value(
        self, depth: int, value: str, shape: Shape, nullable: bool, compact: bool, path: str, *, null: int = PLAIN_NULL
    ) -> None:
        match shape:
            case Fixed():
                self.run.add(value, shape, path)
            case Struct():
                self._nested(depth, value, shape, nullable, path, null)
            case Array():
                self._array(depth, value, shape, nullable, compact, path)
            case Text() | Blob():
                self._sized(depth, value, shape, nullable, compact, path)

    def _shared(self, depth: int, value: str, member: Member, path: str) -> None:
        """Write a value that the previous struct may share, reusing its bytes if it does."""
        line = self.source.line
        self._flush(depth)
        last, written = self.source.unique("v"), self.source.unique("b")
        self.shared.append(last)
        line(depth, f"if {value} is not {last}:", path)
        line(depth + 1, f"{last} = {value}", path)
        line(depth + 1, "chunks = []", path)
        line(depth + 1, "around, add = add, chunks.append", path)
        self._value(depth + 1, last, member.shape, member.nullable, member.compact, path)
        self._flush(depth + 1)
        line(depth + 1, "add = around", path)
        line(depth + 1, f"{written} = b''.join(chunks)", path)
        line(depth, f"add({written})", path)

    def _nested(self, depth: int, value: str, shape: Struct, nullable: bool, path: str, null: int) -> None:
        line = self.source.line
        self._flush(depth)
        var = self.source.unique("o")
        line(depth, f"{var} = {value}", path)
        if nullable:
            line(depth, f"if {var} is None:", path)
            line(depth + 1, f"add({struct.pack('b', null)!r})", path)
            line(depth, "else:", path)
            line(depth + 1, "add(b'\\x01')", path)
            depth += 1
        self._struct(depth, var, shape, f"{path}.")

    def _sized(self, depth: int, value: str, shape: Text | Blob, nullable: bool, compact: bool, path: str) -> None:
        line = self.source.line
        data, size = self.source.unique("v"), self.source.unique("n")
        plus = " + 1" if compact else ""
        line(depth, f"{data} = {value}", path)
        if nullable:
            line(depth, f"if {data} is None:", path)
            line(depth + 1, f"{size} = {0 if compact else -1}", path)
            line(depth, "else:", path)
        inner = depth + 1 if nullable else depth
        if isinstance(shape, Text):
            line(inner, f"{data} = {data}.encode()", path)
        line(inner, f"{size} = len({data}){plus}", path)
        self._length(depth, size, shape, compact, path)
        line(depth, f"if {size} > {1 if compact else 0}:", path)
        line(depth + 1, f"add({data})", path)

    def _array(self, depth: int, value: str, shape: Array, nullable: bool, compact: bool, path: str) -> None:
        line = self.source.line
        items, size = self.source.unique("v"), self.source.unique("n")
        plus = " + 1" if compact else ""
        line(depth, f"{items} = {value}", path)
        null = f"{0 if compact else -1} if {items} is None else " if nullable else ""
        line(depth, f"{size} = {null}len({items}){plus}", path)
        self._length(depth, size, shape, compact, path)
        line(depth, f"if {items}:", path)
        element = shape.element
        if isinstance(element, Fixed):
            letters = (
                f"'{element.format}' * len({items})" if element.size == 16 else f"f'{{len({items})}}{element.format}'"
            )
            line(depth + 1, f"add(pack('>' + {letters}, *{items}))", path)
            return
        one = self.source.unique("o")
        line(depth + 1, f"for {one} in {items}:", path)
        if isinstance(element, Struct):
            self._struct(depth + 2, one, element, f"{path}[].")
        else:
            self._value(depth + 2, one, element, False, compact, f"{path}[]")

    def _length(self, depth: int, size: str, shape: Text | Blob | Array, compact: bool, path: str) -> None:
        """Write a length: if it is one byte, in one call with the fixed values before it."""
        if not compact:
            self.run.add(size, PLAIN_LENGTH[type(shape)], path)
            self._flush(depth)
            return
        self.source.line(depth, f"if {size} < 128:", path)
        self._emit(depth + 1, "B", [size], path)
        self.source.line(depth, "else:", path)
        if self.run.parts:
            self._emit(depth + 1, "", [], path)
        self.source.line(depth + 1, f"add(uvarint({size}))", path)
        self.run = Run()

    def _tag_writer(self, shape: Struct, path: str) -> str:
        outer, self.source = self.source, self.source.sibling()
        outer_run, self.run = self.run, Run()
        helper = self.source.unique("tags")
        line = self.source.line
        where = f"{path}tagged fields"
        line(0, f"def {helper}(struct, put):", where)
        line(1, "tags = [] if struct.unknown_tags is None else list(struct.unknown_tags.items())", where)
        for member in shape.tagged:
            value = f"struct.{member.name}"
            condition = f"not ({self._is_default(value, member)})"
            if member.optional:
                assert isinstance(member.shape, Struct)
                condition += f" and {value} != {self._default_struct(member.shape.cls())}"
            line(1, f"if {condition}:", where)
            line(2, "chunks = []", where)
            line(2, "add = chunks.append", where)
            within = f"{path}{member.name}"
            self._value(2, value, member.shape, member.nullable, member.compact, within, null=TAGGED_NULL)
            self._flush(2)
            line(2, f"tags.append(({member.tag}, b''.join(chunks)))", where)
        line(1, "put_tags(tags, put)", where)
        self.helpers.extend(self.source)
        self.source, self.run = outer, outer_run
        return helper

    def _flush(self, depth: int) -> None:
        if self.run.parts:
            self._emit(depth, "", [], self.run.path())
            self.run = Run()

    def _emit(self, depth: int, tail: str, more: list[str], path: str) -> None:
        """Emit the gathered values and a tail as one chunk."""
        if not self.run.parts:
            chunk = "b'\\0'" if tail == "x" else f"one_byte[{more[0]}]"
            self.source.line(depth, f"add({chunk})", path)
            return
        letters, packed = self.run.struct(tail)
        packer = self.source.name(f"pack_{letters}", packed.pack)
        self.source.line(depth, f"add({packer}({', '.join([*self.run.parts, *more])}))", self.run.path() or path)
