"""Scans over the batches of a segment's file, a block at a time, and the division of batches into segments."""

from collections.abc import Iterator

from ottla.protocol.wire.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAX_INT32,
    BatchHeader,
    CorruptBatch,
    check_crc,
    check_stored,
    read_header,
)
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.disk import Disk

_BLOCK_BYTES = 1024 * 1024
_HOP_BYTES = 4096


class CorruptLog(Exception):
    """A segment has invalid bytes at a position."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {why}")
        self.path = path
        self.position = position


def scan_batches(
    disk: Disk, file: int, path: str, start: int, end: int
) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Verify each batch from byte `start` to `end`; yield its position, header, a buffer and its position in that.

    Raise CorruptLog at the first batch that is invalid or does not end before `end`.
    """
    position = start
    block, pos = b"", 0
    while position < end:
        try:
            if len(block) - pos < HEADER_BYTES:
                block, pos = disk.pread(file, min(_BLOCK_BYTES, end - position), position), 0
            header = read_header(block, pos)
            size = header.batch_length + LENGTH_PREFIX_BYTES
            if size > len(block) - pos:
                if size > end - position:
                    raise CorruptBatch(f"batch of {size} bytes, {end - position} left")
                block, pos = disk.pread(file, min(max(size, _BLOCK_BYTES), end - position), position), 0
            check_crc(block, pos, header)
            check_stored(header)
        except ProtocolError as error:
            raise CorruptLog(path, position, str(error)) from error
        yield position, header, block, pos
        pos += size
        position += size


def scan_headers(disk: Disk, file: int, path: str, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch, without reading the records of large batches.

    Only headers are checked. Raise CorruptLog at the first invalid one.
    """
    position = start
    block, pos = b"", 0
    read_bytes = _BLOCK_BYTES
    while position < end:
        if len(block) - pos < HEADER_BYTES:
            block, pos = disk.pread(file, min(read_bytes, end - position), position), 0
        try:
            header = read_header(block, pos)
            check_stored(header)
            size = header.batch_length + LENGTH_PREFIX_BYTES
            if size > end - position:
                raise CorruptBatch(f"batch of {size} bytes, {end - position} left")
        except ProtocolError as error:
            raise CorruptLog(path, position, str(error)) from error
        yield position, header
        pos += size
        position += size
        if pos >= len(block):
            # The next header is not in this block. Small blocks skip the records of large batches.
            read_bytes = _HOP_BYTES if size > _HOP_BYTES else _BLOCK_BYTES
            block, pos = b"", 0


def in_segments(taken: list[tuple[int, BatchHeader]], segment_bytes: int) -> Iterator[list[tuple[int, BatchHeader]]]:
    """Divide consecutive batches into groups that each fit into one segment."""
    group: list[tuple[int, BatchHeader]] = []
    size = 0
    for pos, header in taken:
        size += header.size_bytes
        if group and (size > segment_bytes or header.last_offset - group[0][1].base_offset > MAX_INT32):
            yield group
            group, size = [], header.size_bytes
        group.append((pos, header))
    if group:
        yield group
