"""Kafka's checkpoint files: one offset for each partition of a log directory, as text.

    0                      the version
    2                      the number of lines that follow
    orders 0 1234          topic, partition, offset
    orders 1 99

A file is replaced atomically. A missing file has no offsets, and neither has an empty one, which Kafka creates first.
Any other fault is an error, because a guessed recovery point could lose records.
"""

import re
from collections.abc import Mapping
from typing import Final

from ottla.storage.disk import Disk, read_file, replace_file

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
"""The offset up to which each log is durable."""
LOG_STARTS: Final = "log-start-offset-checkpoint"
"""The log start offset of each log that does not start with its first segment."""
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
"""The offset up to which each log was compacted."""

_VERSION: Final = "0"
_line_end = re.compile(r"\r\n|\n|\r")
_blanks = re.compile(r"[ \t\n\x0b\f\r]+")
_integer = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_PARTITION_MAX: Final = (1 << 31) - 1
_OFFSET_MAX: Final = (1 << 63) - 1


class MalformedCheckpoint(Exception):
    """A checkpoint file is invalid at a line."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.path = path
        self.line = line


def read_checkpoint(disk: Disk, path: str) -> dict[tuple[str, int], int]:
    """Return (topic, partition) → offset. Raise MalformedCheckpoint."""
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return {}
    return parse_checkpoint(content, path)


def write_checkpoint(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace the file, durably."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_file(disk, path, "".join(line + "\n" for line in lines).encode())


def parse_checkpoint(content: bytes, path: str) -> dict[tuple[str, int], int]:
    """Parse the content of a file. The path is for the error."""
    try:
        lines = _line_end.split(content.decode())
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(path, content.count(b"\n", 0, error.start) + 1, "not UTF-8") from None
    if not lines[-1]:  # after the last newline
        lines.pop()
    if not lines:
        return {}
    if lines[0] != _VERSION:
        raise MalformedCheckpoint(path, 1, f"version {lines[0]!r} instead of {_VERSION}")
    if len(lines) == 1:
        return {}
    count = _number(lines[1], _PARTITION_MAX)
    if count is None:
        raise MalformedCheckpoint(path, 2, f"{lines[1]!r} is not a number of entries")
    offsets = {}
    for number, line in enumerate(lines[2:], 3):
        topic, partition, offset = _entry(line, path, number)
        offsets[topic, partition] = offset
    if count != len(lines) - 2:
        raise MalformedCheckpoint(path, len(lines), f"the file ends after {len(lines) - 2} of {count} entries")
    return offsets


def _entry(line: str, path: str, number: int) -> tuple[str, int, int]:
    parts = _blanks.split(line)
    if len(parts) == 3:
        partition, offset = _number(parts[1], _PARTITION_MAX), _number(parts[2], _OFFSET_MAX)
        if partition is not None and offset is not None:
            return parts[0], partition, offset
    raise MalformedCheckpoint(path, number, f"{line!r} is not a topic, a partition and an offset")


def _number(text: str, highest: int) -> int | None:
    return int(text) if _integer(text) and -highest <= int(text) <= highest else None
