"""The source text of generated codecs, with the field that each line reads or writes.

Generated code does no bookkeeping for error messages. When it raises, the line number identifies the field and the
local variable `pos` of that frame gives the byte. So a valid message pays nothing for good error messages.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any

from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.types import Fixed


class Malformed(Exception):
    """An error inside a generated reader, which converts it to a ProtocolError with the field and the position."""


class UnwritableError(ValueError):
    """A message that cannot be written in this version: a bug in this program, never a client's fault."""


class Source:
    """The lines of a generated module, and the names that they use."""

    def __init__(self, title: str, names: dict[str, Any], numbers: "Iterator[int] | None" = None) -> None:
        self.title = title
        self.names = names
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.numbers = numbers or count(1)

    def sibling(self) -> "Source":
        """Return an empty part of the same module, which `extend` appends."""
        return Source(self.title, self.names, self.numbers)

    def line(self, depth: int, text: str, path: str) -> None:
        self.lines.append("    " * depth + text)
        self.paths.append(path)

    def unique(self, stem: str) -> str:
        return f"{stem}{next(self.numbers)}"

    def name(self, name: str, value: Any) -> str:
        """Make `value` available to the generated code under this name."""
        self.names.setdefault(name, value)
        return name

    def expose(self, factory: Callable[[], Any]) -> str:
        """Make a declared class available to the generated code under its own name."""
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
        run: Callable[..., Any] = self.names["run"]
        return run

    def where(self, error: BaseException) -> tuple[str, int]:
        """Return the field and the byte at which generated code raised."""
        path, pos = "", -1
        frame: TracebackType | None = error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == self.title:
                path = self.paths[frame.tb_lineno - 1]
                pos = frame.tb_frame.f_locals.get("pos", -1)
            frame = frame.tb_next
        return path, pos


def malformed(error: Exception, title: str, path: str, pos: int, size: int) -> ProtocolError:
    """Convert a generated reader's exception to a ProtocolError."""
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
    """Adjacent values of fixed width, which are read or written by one `struct` call."""

    def __init__(self) -> None:
        self.format = ">"
        self.parts: list[str] = []
        self.fields: list[str] = []

    def add(self, part: str, kind: Fixed, field: str) -> None:
        self.format += kind.format
        self.parts.append(part)
        self.fields.append(field)

    def struct(self, tail: str = "") -> tuple[str, struct.Struct]:
        """Return a name and the `struct` for these values and a tail."""
        packed = struct.Struct(self.format + tail)
        return packed.format[1:].replace("?", "t"), packed

    def path(self) -> str:
        if not self.fields:
            return ""
        first, last = self.fields[0], self.fields[-1]
        return first if first == last else f"{first} to {last.rpartition('.')[2]}"
