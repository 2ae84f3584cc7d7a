"""The shape of a message in one version: its declaration resolved into a tree for the code generators."""

import typing
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeAlias

from ottla.protocol.wire.declare import Field, Schema, Versions, is_declared, schema_of
from ottla.protocol.wire.types import BOOLEAN, Fixed, RecordsMark


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text after its length."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes after their length. Those of `records` are read as a view and written without a copy."""

    records: bool


@dataclass(frozen=True, slots=True)
class Array:
    element: "Shape"


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: its plain fields in wire order, its tagged fields by tag, and the fields that this version lacks."""

    cls: type
    flexible: bool
    plain: "tuple[Member, ...]"
    tagged: "tuple[Member, ...]"
    absent: "tuple[Member, ...]"


Shape: TypeAlias = Fixed | Text | Blob | Array | Struct


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a struct."""

    name: str
    shape: Shape
    nullable: bool
    compact: bool
    field: Field

    @property
    def tag(self) -> int:
        assert self.field.tag is not None
        return self.field.tag

    @property
    def optional(self) -> bool:
        """Whether the field is a tagged struct that is None when it is absent."""
        return self.field.tag is not None and isinstance(self.shape, Struct) and not self.nullable


def resolve(schema: Schema, version: int) -> Struct:
    return _struct(schema, version, version in schema.flexible)


def _struct(schema: Schema, version: int, flexible: bool) -> Struct:
    plain, tagged, absent = [], [], []
    for name, field in schema.fields.items():
        member = _member(name, field, schema.cls.__annotations__[name], version, flexible)
        if version not in Versions(field.versions):
            absent.append(member)
        elif field.tag is not None:
            tagged.append(member)
        else:
            plain.append(member)
    tagged.sort(key=lambda member: member.tag)
    return Struct(schema.cls, flexible, tuple(plain), tuple(tagged), tuple(absent))


def _member(name: str, field: Field, annotation: Any, version: int, flexible: bool) -> Member:
    inner, may_be_none = _split_optional(annotation)
    shape = _shape(inner, version, flexible)
    nullable = may_be_none and version in Versions(_null_versions(field, shape))
    return Member(name, shape, nullable, flexible and field.compact, field)


def _null_versions(field: Field, shape: Shape) -> str:
    if field.nullable is not None:
        return field.nullable
    # A tagged struct that is None is not written. It has a null on the wire only if the declaration says so.
    return "" if field.tag is not None and isinstance(shape, Struct) else field.versions


def _split_optional(annotation: Any) -> tuple[Any, bool]:
    if not isinstance(annotation, UnionType) and typing.get_origin(annotation) is not typing.Union:
        return annotation, False
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    assert len(kinds) == 1, f"the type of a field must be one type, or one type and None, not {annotation}"
    return kinds[0], True


def _shape(annotation: Any, version: int, flexible: bool) -> Shape:
    mark = annotation.__metadata__[0] if hasattr(annotation, "__metadata__") else None
    if isinstance(mark, Fixed):
        return mark
    if isinstance(mark, RecordsMark):
        return Blob(records=True)
    if annotation is bool:
        return BOOLEAN
    if annotation is str:
        return Text()
    if annotation is bytes:
        return Blob(records=False)
    if typing.get_origin(annotation) is list:
        return Array(_shape(typing.get_args(annotation)[0], version, flexible))
    assert is_declared(annotation), f"no wire type for {annotation}"
    return _struct(schema_of(annotation), version, flexible)


def smallest_size(shape: Shape, flexible: bool) -> int:
    """Return the fewest bytes that a value can take, which bounds an array's count before anything is allocated."""
    match shape:
        case Fixed():
            return shape.size
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case Struct():
            # A nullable struct may be a single byte.
            plain = (
                1 if m.nullable and isinstance(m.shape, Struct) else smallest_size(m.shape, m.compact)
                for m in shape.plain
            )
            return sum(plain) + (1 if shape.flexible else 0)
