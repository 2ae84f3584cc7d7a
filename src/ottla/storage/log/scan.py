"""Walks over the batches of a segment's file, in order, a block at a time; and over those that are to be in one."""

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
    """Bytes in a segment that are not those that were written: says where, and what was found."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {why}")
        self.path = path
        self.position = position


def scan_batches(
    disk: Disk, file: int, path: str, start: int, end: int
) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Each whole batch from byte `start` to byte `end`, verified: its position, header, and a buffer with where it is.

    Raises CorruptLog at the first batch whose bytes are not right, or that does not end before `end`.
    """
    position = start
    block, at = b"", 0
    while position < end:
        try:
            if len(block) - at < HEADER_BYTES:
                block, at = disk.pread(file, min(_BLOCK_BYTES, end - position), position), 0
            header = read_header(block, at)
            size = header.batch_length + LENGTH_PREFIX_BYTES
            if size > len(block) - at:
                if size > end - position:
                    raise CorruptBatch(f"batch of {size} bytes, {end - position} left")
                block, at = disk.pread(file, min(max(size, _BLOCK_BYTES), end - position), position), 0
            check_crc(block, at, header)
            check_stored(header)
        except ProtocolError as error:
            raise CorruptLog(path, position, str(error)) from error
        yield position, header, block, at
        at += size
        position += size


def scan_headers(disk: Disk, file: int, path: str, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The header of each batch with its position, without reading what lies between where batches are large.

    Checks only what a header tells; raises CorruptLog where it cannot go on.
    """
    position = start
    block, at = b"", 0
    read_bytes = _BLOCK_BYTES
    while position < end:
        if len(block) - at < HEADER_BYTES:
            block, at = disk.pread(file, min(read_bytes, end - position), position), 0
        try:
            header = read_header(block, at)
            check_stored(header)
            size = header.batch_length + LENGTH_PREFIX_BYTES
            if size > end - position:
                raise CorruptBatch(f"batch of {size} bytes, {end - position} left")
        except ProtocolError as error:
            raise CorruptLog(path, position, str(error)) from error
        yield position, header
        at += size
        position += size
        if at >= len(block):
            # The next header was not in this block. Small blocks skip the insides of large batches.
            read_bytes = _HOP_BYTES if size > _HOP_BYTES else _BLOCK_BYTES
            block, at = b"", 0


def in_segments(taken: list[tuple[int, BatchHeader]], segment_bytes: int) -> Iterator[list[tuple[int, BatchHeader]]]:
    """Batches with their positions, in groups of neighbours, as many as fit into one segment."""
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
