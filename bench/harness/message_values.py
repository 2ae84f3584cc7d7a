"""Random values of declared messages, with a preference for the limits of each type."""

from random import Random
from typing import Any

from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve
from ottla.protocol.wire.types import Fixed

TEXTS = ("", "a", "topic-1", "naïve", "日本", "𝔘𝔫𝔦", "x" * 126, "y" * 127, "z" * 128, "ñ" * 300)
SIZES = {"b": 8, "h": 16, "i": 32, "q": 64}


class Values:
    """Creates values from one source of randomness. Subclasses restrict the values of a field."""

    def __init__(self, random: Random, *, unknown_tags: bool = True) -> None:
        self.random = random
        self.unknown_tags = unknown_tags

    def message(self, cls: type, version: int) -> Any:
        return self.struct(resolve(schema_of(cls), version), depth=0)

    def struct(self, shape: Struct, depth: int) -> Any:
        message = shape.cls()
        for member in (*shape.plain, *shape.tagged):
            setattr(message, member.name, self.member(member, depth))
        if shape.flexible and self.unknown_tags and self.random.random() < 0.05:
            tags = self.random.sample(range(20, 400), self.random.randint(1, 3))
            message.unknown_tags = {
                tag: self.random.randbytes(self.random.choice((0, 1, 5, 130))) for tag in sorted(tags)
            }
        return message

    def member(self, member: Member, depth: int) -> Any:
        if member.field.tag is not None and self.random.random() < 0.4:
            return member.field.make_default()
        if member.nullable and self.random.random() < 0.2:
            return None
        value = self.value(member.shape, member.name, depth)
        # On the wire, a tagged struct of defaults is the same as a missing one, and is decoded as None.
        return None if member.optional and value == type(value)() else value

    def value(self, shape: Shape, name: str, depth: int) -> Any:
        match shape:
            case Fixed():
                return self.fixed(shape, name)
            case Text():
                return self.random.choice(TEXTS) if self.random.random() < 0.8 else f"t{self.random.random()}"
            case Blob():
                return self.random.randbytes(self.random.choice((0, 1, 3, 126, 127, 128, 300)))
            case Array():
                lengths = (0, 1, 1, 2) if depth else (0, 1, 2, 3, 130 if isinstance(shape.element, Fixed | Text) else 4)
                return [self.value(shape.element, name, depth + 1) for _ in range(self.random.choice(lengths))]
            case Struct():
                return self.struct(shape, depth + 1)

    def fixed(self, kind: Fixed, name: str) -> Any:
        random = self.random
        if kind.format == "?":
            return random.random() < 0.5
        if kind.format == "16s":
            return random.randbytes(16) if random.random() < 0.9 else bytes(16)
        if kind.format == "d":
            return random.choice((0.0, -1.5, 1e300, float("inf"), random.random()))
        if kind.format == "H":
            return random.choice((0, 1, 65_535, random.randrange(65_536)))
        top = 1 << (SIZES[kind.format] - 1)
        return random.choice((0, 1, -1, top - 1, -top, random.randrange(-top, top), random.randrange(100)))
