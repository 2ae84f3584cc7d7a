"""The four compression codecs of record batches.

The writers produce what Kafka's Java client reads. The readers accept what any client writes. `decompress` never holds
more than the limit plus about one block: it checks the sizes that the input declares before it allocates memory.
`decompress_in_pieces` holds one piece at a time, and what the codec itself needs: a whole block of snappy, the window
of a zstd frame. For any input, the only exception is ProtocolError. Gzip members and lz4 or zstd frames may be
concatenated, up to MAX_FRAMES; bytes after the last one are an error.

- gzip: one member, as zlib writes it.
- snappy: xerial framing (a 16-byte header, then blocks of 32 KiB with their lengths). The reader also accepts raw
  snappy, which librdkafka writes.
- lz4: one frame of independent 64 KiB blocks without checksums or content size. Java rejects linked blocks.
- zstd: one frame with its content size. Java does not write the size, so the bound comes from the block headers.
"""

import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

import cramjam
import lz4.frame
import zstandard

from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.varint import Buffer

MAX_FRAMES = 1024
"""The most frames or members in one input. Known clients write one; the limit stops inputs of many empty frames."""

PIECE_BYTES = 256 * 1024
"""The size of a piece of `decompress_in_pieces`. The last may be smaller; others exceed it by less than a block."""

_INPUT_BYTES = 64 * 1024  # input per call of zlib: bounds what it copies when a member ends
_CHUNK_BYTES = 1024 * 1024  # output per call

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_RESTART = int.from_bytes(_XERIAL_MAGIC[:4])  # read as a block's length, it means that another stream follows
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MAX_RATIO = 22  # a 3-byte copy gives at most 64 bytes

_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_SKIPPABLE = 0x184D2A5
_ZSTD_WINDOW_BYTES = 1 << 27  # the window of Java's level 22, and zstd's default limit

# lz4 has no exception type of its own: a corrupt frame is a RuntimeError.
_CODEC_ERRORS = (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError)

_uint32 = struct.Struct(">I").unpack_from
_uint32_little = struct.Struct("<I").unpack_from


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS: dict[Compression, tuple[int, int, int]] = {
    Compression.GZIP: (1, 9, -1),
    Compression.LZ4: (1, 17, 9),
    Compression.ZSTD: (-131072, 22, 3),
}
"""Kafka's lowest, highest and default level of each codec that has levels."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress data. Raise ValueError for a level outside Kafka's range."""
    if level is not None and codec in LEVELS:
        lowest, highest, default = LEVELS[codec]
        if level != default and not lowest <= level <= highest:
            raise ValueError(f"compression level {level} of {codec.name.lower()} must be from {lowest} to {highest}")
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=31)
        case Compression.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(codec: Compression, data: Buffer, *, limit: int) -> bytes:
    """Decompress data. Raise ProtocolError if it is corrupt, truncated or larger than `limit` bytes."""
    view = memoryview(data)
    try:
        match codec:
            case Compression.NONE:
                if len(view) > limit:
                    raise _too_large(limit)
                return bytes(view)
            case Compression.GZIP:
                return b"".join(_decompress_gzip(view, limit, _CHUNK_BYTES))
            case Compression.SNAPPY:
                return b"".join(_decompress_snappy(view, limit))
            case Compression.LZ4:
                return b"".join(_decompress_lz4(view, limit, _CHUNK_BYTES))
            case Compression.ZSTD:
                return b"".join(_decompress_zstd(view, limit, None))
    except _CODEC_ERRORS as error:
        raise ProtocolError(f"corrupt {codec.name.lower()} data: {error}") from None


def decompress_in_pieces(codec: Compression, data: Buffer, *, limit: int) -> Iterator[Buffer]:
    """Decompress data lazily, in pieces. Raise ProtocolError at the first piece that cannot be decompressed."""
    view = memoryview(data)
    try:
        match codec:
            case Compression.NONE:
                if len(view) > limit:
                    raise _too_large(limit)
                for start in range(0, len(view), PIECE_BYTES):
                    yield view[start : start + PIECE_BYTES]
            case Compression.GZIP:
                yield from _joined(_decompress_gzip(view, limit, PIECE_BYTES))
            case Compression.SNAPPY:
                yield from _joined(_decompress_snappy(view, limit))
            case Compression.LZ4:
                yield from _joined(_decompress_lz4(view, limit, PIECE_BYTES))
            case Compression.ZSTD:
                yield from _joined(_decompress_zstd(view, limit, PIECE_BYTES))
    except _CODEC_ERRORS as error:
        raise ProtocolError(f"corrupt {codec.name.lower()} data: {error}") from None


def compress_in_pieces(
    codec: Compression, pieces: Iterable[Buffer], size_bytes: int | None, level: int | None = None
) -> Iterator[bytes]:
    """Compress the concatenated pieces, yielding a part at a time. zstd stores the size if it is given."""
    pieces = _joined(pieces)
    match codec:
        case Compression.NONE:
            yield from pieces
        case Compression.GZIP:
            deflater = zlib.compressobj(-1 if level is None else level, wbits=31)
            yield from map(deflater.compress, pieces)
            yield deflater.flush()
        case Compression.SNAPPY:
            yield _XERIAL_HEADER
            for block in _in_blocks(pieces, _XERIAL_BLOCK_BYTES):
                yield from _snappy_block(block)
        case Compression.LZ4:
            framer = lz4.frame.LZ4FrameCompressor(**_lz4_options(level))
            yield framer.begin()
            yield from map(framer.compress, pieces)
            yield framer.flush()
        case Compression.ZSTD:
            compressor = zstandard.ZstdCompressor(level=3 if level is None else level)
            stream = compressor.compressobj(size=-1 if size_bytes is None else size_bytes)
            yield from map(stream.compress, pieces)
            yield stream.flush()


def _joined(blocks: Iterable[Buffer]) -> Iterator[bytes]:
    """Join blocks into pieces of PIECE_BYTES or slightly more. Only the last piece may be smaller."""
    gathered: list[Buffer] = []
    size = 0
    for block in blocks:
        gathered.append(block)
        size += len(block)
        if size >= PIECE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


def _in_blocks(pieces: Iterable[bytes], block_bytes: int) -> Iterator[memoryview]:
    """Split pieces into blocks of one size. The last block may be smaller."""
    rest = b""
    for piece in pieces:
        view = memoryview(rest + piece if rest else piece)
        whole = len(view) - len(view) % block_bytes
        for start in range(0, whole, block_bytes):
            yield view[start : start + block_bytes]
        rest = bytes(view[whole:])
    if rest:
        yield memoryview(rest)


def _compress_snappy(view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        parts += _snappy_block(view[start : start + _XERIAL_BLOCK_BYTES])
    return b"".join(parts)


def _snappy_block(view: memoryview) -> tuple[bytes, bytes]:
    block = bytes(cramjam.snappy.compress_raw(view))
    return len(block).to_bytes(4), block


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    frame: bytes = lz4.frame.compress(data, store_size=False, **_lz4_options(level))
    return frame


def _lz4_options(level: int | None) -> dict[str, Any]:
    return {
        # In Java, the default of 9 selects the fast compressor, level 0 here. Other levels mean high compression.
        "compression_level": 0 if level in (None, 9) else level,
        "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,
        "content_checksum": False,
    }


def _decompress_gzip(view: memoryview, limit: int, at_once: int) -> Iterator[bytes]:
    total = pos = 0
    for _ in range(MAX_FRAMES):
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            piece: Buffer = inflater.unconsumed_tail
            if not piece:
                piece = view[pos : pos + _INPUT_BYTES]
                pos += len(piece)
            chunk = inflater.decompress(piece, min(at_once, limit - total + 1))
            if not chunk and not piece and not inflater.eof:
                raise ProtocolError("gzip data is truncated", position=pos)
            total += len(chunk)
            if total > limit:
                raise _too_large(limit)
            yield chunk
        pos -= len(inflater.unused_data)
        if pos == len(view):
            return
    raise _too_many_frames()


def _decompress_snappy(view: memoryview, limit: int) -> Iterator[bytes]:
    if view[:8] != _XERIAL_MAGIC:
        yield _decompress_snappy_block(view, 0, limit)
        return
    total = pos = 0
    while pos < len(view):
        if len(view) - pos < 4:
            raise ProtocolError("snappy data is truncated", position=pos)
        (size,) = _uint32(view, pos)
        if size == _XERIAL_RESTART:
            if len(view) - pos < 16 or view[pos : pos + 8] != _XERIAL_MAGIC or _uint32(view, pos + 8)[0] < 1:
                raise ProtocolError("malformed header of snappy blocks", position=pos)
            pos += 16
            continue
        pos += 4
        if size > len(view) - pos:
            raise ProtocolError(f"snappy block of {size} bytes, {len(view) - pos} left", position=pos)
        block = _decompress_snappy_block(view[pos : pos + size], total, limit)
        total += len(block)
        pos += size
        yield block


def _decompress_snappy_block(view: memoryview, before: int, limit: int) -> bytes:
    declared = cramjam.snappy.decompress_raw_len(view)
    if declared > len(view) * _SNAPPY_MAX_RATIO:
        raise ProtocolError(f"{len(view)} bytes of snappy cannot hold the {declared} bytes that they declare")
    if before + declared > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(view))


def _decompress_lz4(view: memoryview, limit: int, at_once: int) -> Iterator[bytes]:
    context = lz4.frame.create_decompression_context()
    total = pos = frames = 0
    while True:
        room = min(at_once, limit - total + 1)
        chunk, taken, at_end = lz4.frame.decompress_chunk(context, view[pos:], max_length=room)
        if not chunk and not taken:
            raise ProtocolError("lz4 data is truncated", position=pos)
        total += len(chunk)
        pos += taken
        if total > limit:
            raise _too_large(limit)
        yield chunk
        if at_end:
            if pos == len(view):
                return
            frames += 1
            if frames == MAX_FRAMES:
                raise _too_many_frames()


class _Zstd(threading.local):
    """One decompressor per thread: it is not thread-safe, and creating it costs a third of a small batch."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)


_zstd = _Zstd()


def _decompress_zstd(view: memoryview, limit: int, at_once: int | None) -> Iterator[bytes]:
    """Decompress each frame in one piece, or in pieces of `at_once` bytes if it may hold more."""
    total = pos = 0
    for _ in range(MAX_FRAMES):
        if len(view) - pos < 8:
            raise ProtocolError("zstd data is truncated", position=pos)
        if _uint32_little(view, pos)[0] >> 4 == _ZSTD_SKIPPABLE:
            pos += 8 + _uint32_little(view, pos + 4)[0]
        else:
            end, least, most = _measure_zstd_frame(view, pos)
            if total + least > limit:
                raise _too_large(limit)
            if at_once is None or most <= at_once:
                chunks = iter((_decompress_zstd_frame(view[pos:end], most, limit - total),))
            else:
                chunks = _stream_zstd_frame(view[pos:end], at_once)
            for chunk in chunks:
                total += len(chunk)
                if total > limit:
                    raise _too_large(limit)
                yield chunk
            pos = end
        if pos > len(view):
            raise ProtocolError("zstd data is truncated", position=len(view))
        if pos == len(view):
            return
    raise _too_many_frames()


def _decompress_zstd_frame(frame: memoryview, most: int, limit: int) -> bytes:
    """Return the whole content. It may exceed the limit by one byte, which the caller notices."""
    room = min(most, limit + 1)
    try:
        # The library takes a size of 0 for unknown.
        return _zstd.decompressor.decompress(frame, max_output_size=room) if room else b""
    except zstandard.ZstdError:
        if most > limit:
            raise _too_large(limit) from None
        raise


def _stream_zstd_frame(frame: memoryview, at_once: int) -> Iterator[bytes]:
    """Yield the content in pieces. The decompressor is freed at the end, with its window, which may be large."""
    with zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).stream_reader(frame) as reader:
        while chunk := reader.read(at_once):
            yield chunk


def _measure_zstd_frame(view: memoryview, start: int) -> tuple[int, int, int]:
    """Return where the frame ends, and the least and the most bytes it can hold. A declared size is both."""
    frame = zstandard.get_frame_parameters(view[start:])
    end, least, most = _measure_zstd_blocks(view, start, frame)
    declared = frame.content_size
    if declared != zstandard.CONTENTSIZE_UNKNOWN:
        if not least <= declared <= most:
            raise ProtocolError(f"zstd frame declares {declared} bytes but can hold {least} to {most}", position=start)
        least = most = declared
    return end, least, most


def _measure_zstd_blocks(view: memoryview, start: int, frame: zstandard.FrameParameters) -> tuple[int, int, int]:
    """Return where the frame ends, and the least and the most bytes that its blocks can hold."""
    pos = start + zstandard.frame_header_size(view[start:])
    block_bytes = min(frame.window_size, _ZSTD_BLOCK_BYTES)
    least = most = last = 0
    while not last:
        if len(view) - pos < 3:
            raise ProtocolError("zstd data is truncated", position=pos)
        block = view[pos] | view[pos + 1] << 8 | view[pos + 2] << 16
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        pos += 3
        if kind == 2:
            most += block_bytes
            pos += size
        else:
            least += size
            most += size
            pos += 1 if kind == 1 else size
    return pos + (4 if frame.has_checksum else 0), least, most


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError(f"decompresses to more than {limit} bytes")


def _too_many_frames() -> ProtocolError:
    return ProtocolError(f"more than {MAX_FRAMES} compressed frames")
