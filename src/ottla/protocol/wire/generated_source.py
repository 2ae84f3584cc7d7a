"""Source text of generated codecs, with the field that each line is about.

Generated code carries no bookkeeping for error messages: when it raises, the line that raised tells the field, and the
local variable `pos` of that frame tells the byte. Reading a valid message costs nothing for that.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any

from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.types import Fixed


class Malformed(Exception):
    """Raised inside generated readers, where the place is not known yet; leaves them as a ProtocolError."""


class UnwritableError(ValueError):
    """A message that cannot be written in this version: a bug of the code that made it, never of a client."""


class Source:
    """Lines of one generated module and the names they use."""

    def __init__(self, title: str, names: dict[str, Any], numbers: "Iterator[int] | None" = None) -> None:
        self.title = title
        self.names = names
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.numbers = numbers or count(1)

    def sibling(self) -> "Source":
        """An empty part of the same module, to be joined to it by `extend`."""
        return Source(self.title, self.names, self.numbers)

    def line(self, depth: int, text: str, path: str) -> None:
        self.lines.append("    " * depth + text)
        self.paths.append(path)

    def unique(self, stem: str) -> str:
        return f"{stem}{next(self.numbers)}"

    def name(self, name: str, value: Any) -> str:
        """Let the generated code see `value` by this name."""
        self.names.setdefault(name, value)
        return name

    def expose(self, factory: Callable[[], Any]) -> str:
        """Let the generated code call a declared class by its own name."""
        name = self.name(factory.__name__, factory)
        assert self.names[name] is factory, f"two classes are named {name} in {self.title}"
        return name

    def extend(self, other: "Source") -> None:
        self.lines += other.lines
        self.paths += other.paths

    def compile(self) -> Callable[..., Any]:
        """Run the module and return its function `run`."""
        self.names["where"] = self.where
        text = "\n".join(self.lines)
        exec(compile(text, self.title, "exec"), self.names)  # noqa: S102 (our own source)
        made: Callable[..., Any] = self.names["run"]
        return made

    def where(self, error: BaseException) -> tuple[str, int]:
        """The field and the byte at which generated code raised."""
        path, pos = "", -1
        frame: TracebackType | None = error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == self.title:
                path = self.paths[frame.tb_lineno - 1]
                pos = frame.tb_frame.f_locals.get("pos", -1)
            frame = frame.tb_next
        return path, pos


def malformed(error: Exception, title: str, path: str, pos: int, size: int) -> ProtocolError:
    """What a reader's exception means to the one who sent the bytes."""
    if isinstance(error, Malformed):
        what = str(error)
    elif isinstance(error, ProtocolError):
        what = error.what
    elif isinstance(error, UnicodeDecodeError):
        what = f"invalid UTF-8 ({error.reason})"
    else:
        what = f"ends too early: {max(size - pos, 0)} bytes are left"
    return ProtocolError(f"{path}: {what}" if path else what, position=pos, within=title)


class Run:
    """Neighbouring values of fixed width, gathered to be one `struct` call."""

    def __init__(self) -> None:
        self.format = ">"
        self.parts: list[str] = []
        self.fields: list[str] = []

    def add(self, part: str, kind: Fixed, field: str) -> None:
        self.format += kind.format
        self.parts.append(part)
        self.fields.append(field)

    def struct(self, tail: str = "") -> tuple[str, struct.Struct]:
        """The `struct` of these values and a tail, and a name for it."""
        made = struct.Struct(self.format + tail)
        return made.format[1:].replace("?", "t"), made

    def path(self) -> str:
        if not self.fields:
            return ""
        first, last = self.fields[0], self.fields[-1]
        return first if first == last else f"{first} to {last.rpartition('.')[2]}"
