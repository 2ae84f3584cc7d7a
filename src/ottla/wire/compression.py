"""The four compressions of record batches, written as Kafka's Java client reads them, read as any client writes them.

`decompress` never returns, and never holds, more than the limit plus about a block: sizes that the input declares are
checked before anything is allocated for them. Whatever the input, the only exception is ProtocolError. Gzip members and
lz4 or zstd frames may be concatenated, up to MAX_FRAMES; bytes after the last one are an error.

- gzip: one member, as zlib writes it.
- snappy: xerial framing (16-byte header, then blocks of 32 KiB, each behind its length); bare snappy is read as well,
  since librdkafka writes that.
- lz4: one frame of independent 64 KiB blocks without checksums or content size; Java refuses linked blocks.
- zstd: one frame with its content size. Java writes none, so that the bound comes from the frame's block headers.
"""

import struct
import threading
import zlib
from enum import IntEnum

import cramjam
import lz4.frame
import zstandard

from ottla.wire.errors import ProtocolError
from ottla.wire.varint import Buffer

MAX_FRAMES = 1024
"""Frames or members in one input. Every known client writes one; a million empty ones would only burn time."""

_PIECE_BYTES = 64 * 1024  # input handed to zlib at once: bounds what it copies when a member ends
_CHUNK_BYTES = 1024 * 1024  # output taken at once

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_RESTART = int.from_bytes(_XERIAL_MAGIC[:4])  # where a block's length would be: another stream follows
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MAX_RATIO = 22  # a 3-byte copy gives at most 64 bytes

_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_SKIPPABLE = 0x184D2A5
_ZSTD_WINDOW_BYTES = 1 << 27  # what Java's level 22 asks for, and zstd's own limit unless told otherwise

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
"""Kafka's lowest, highest and default level of the codecs that have any."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """The data in the codec's format; raises ValueError for a level outside Kafka's range."""
    if level is not None and codec in LEVELS:
        lowest, highest, default = LEVELS[codec]
        if level != default and not lowest <= level <= highest:
            raise ValueError(f"level {level} of {codec.name.lower()} is not within {lowest} to {highest}")
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
    """What was compressed, or ProtocolError when it is corrupt, cut short or larger than `limit` bytes."""
    view = memoryview(data)
    try:
        match codec:
            case Compression.NONE:
                if len(view) > limit:
                    raise _too_large(limit)
                return bytes(view)
            case Compression.GZIP:
                return _decompress_gzip(view, limit)
            case Compression.SNAPPY:
                return _decompress_snappy(view, limit)
            case Compression.LZ4:
                return _decompress_lz4(view, limit)
            case Compression.ZSTD:
                return _decompress_zstd(view, limit)
    # lz4 has no exception type of its own: a corrupt frame is a RuntimeError.
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError) as error:
        raise ProtocolError(f"corrupt {codec.name.lower()} data: {error}") from None


def _compress_snappy(view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Java's default of 9 means its fast compressor, which is level 0 here; any other number is high compression.
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, 9) else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return frame


def _decompress_gzip(view: memoryview, limit: int) -> bytes:
    out: list[bytes] = []
    total = pos = 0
    for _ in range(MAX_FRAMES):
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            piece: Buffer = inflater.unconsumed_tail
            if not piece:
                piece = view[pos : pos + _PIECE_BYTES]
                pos += len(piece)
            chunk = inflater.decompress(piece, min(_CHUNK_BYTES, limit - total + 1))
            if not chunk and not piece and not inflater.eof:
                raise ProtocolError("gzip data is cut short", at=pos)
            out.append(chunk)
            total += len(chunk)
            if total > limit:
                raise _too_large(limit)
        pos -= len(inflater.unused_data)
        if pos == len(view):
            return b"".join(out)
    raise _too_many_frames()


def _decompress_snappy(view: memoryview, limit: int) -> bytes:
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, 0, limit)
    out: list[bytes] = []
    total = pos = 0
    while pos < len(view):
        if len(view) - pos < 4:
            raise ProtocolError("snappy data is cut short", at=pos)
        (size,) = _uint32(view, pos)
        if size == _XERIAL_RESTART:
            if len(view) - pos < 16 or view[pos : pos + 8] != _XERIAL_MAGIC or _uint32(view, pos + 8)[0] < 1:
                raise ProtocolError("malformed header of snappy blocks", at=pos)
            pos += 16
            continue
        pos += 4
        if size > len(view) - pos:
            raise ProtocolError(f"snappy block of {size} bytes where {len(view) - pos} are left", at=pos)
        block = _decompress_snappy_block(view[pos : pos + size], total, limit)
        out.append(block)
        total += len(block)
        pos += size
    return b"".join(out)


def _decompress_snappy_block(view: memoryview, before: int, limit: int) -> bytes:
    declared = cramjam.snappy.decompress_raw_len(view)
    if declared > len(view) * _SNAPPY_MAX_RATIO:
        raise ProtocolError(f"{len(view)} bytes of snappy cannot hold the {declared} they declare")
    if before + declared > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(view))


def _decompress_lz4(view: memoryview, limit: int) -> bytes:
    context = lz4.frame.create_decompression_context()
    out: list[bytes] = []
    total = pos = frames = 0
    while True:
        room = min(_CHUNK_BYTES, limit - total + 1)
        chunk, taken, at_end = lz4.frame.decompress_chunk(context, view[pos:], max_length=room)
        if not chunk and not taken:
            raise ProtocolError("lz4 data is cut short", at=pos)
        out.append(chunk)
        total += len(chunk)
        pos += taken
        if total > limit:
            raise _too_large(limit)
        if at_end:
            if pos == len(view):
                return b"".join(out)
            frames += 1
            if frames == MAX_FRAMES:
                raise _too_many_frames()


class _Zstd(threading.local):
    """A decompressor is a third of the cost of a small batch, and must not be shared by threads."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)


_zstd = _Zstd()


def _decompress_zstd(view: memoryview, limit: int) -> bytes:
    out: list[bytes] = []
    total = pos = 0
    for _ in range(MAX_FRAMES):
        if len(view) - pos < 8:
            raise ProtocolError("zstd data is cut short", at=pos)
        if _uint32_little(view, pos)[0] >> 4 == _ZSTD_SKIPPABLE:
            pos += 8 + _uint32_little(view, pos + 4)[0]
        else:
            chunk, pos = _decompress_zstd_frame(view, pos, total, limit)
            out.append(chunk)
            total += len(chunk)
        if total > limit:
            raise _too_large(limit)
        if pos > len(view):
            raise ProtocolError("zstd data is cut short", at=len(view))
        if pos == len(view):
            return b"".join(out)
    raise _too_many_frames()


def _decompress_zstd_frame(view: memoryview, start: int, before: int, limit: int) -> tuple[bytes, int]:
    """The content, of which a byte over the limit may be returned, and where the frame ends."""
    frame = zstandard.get_frame_parameters(view[start:])
    end, least, most = _measure_zstd_frame(view, start, frame)
    declared = frame.content_size
    if declared != zstandard.CONTENTSIZE_UNKNOWN:
        if not least <= declared <= most:
            raise ProtocolError(f"zstd frame that can hold {least} to {most} bytes declares {declared}", at=start)
        least = most = declared
    if before + least > limit:
        raise _too_large(limit)
    room = min(most, limit - before + 1)
    try:
        # To the library, room for nothing means room of unknown size.
        return _zstd.decompressor.decompress(view[start:end], max_output_size=room) if room else b"", end
    except zstandard.ZstdError:
        if before + most > limit:
            raise _too_large(limit) from None
        raise


def _measure_zstd_frame(view: memoryview, start: int, frame: zstandard.FrameParameters) -> tuple[int, int, int]:
    """Where the frame ends, and the least and the most that its blocks can hold."""
    pos = start + zstandard.frame_header_size(view[start:])
    block_bytes = min(frame.window_size, _ZSTD_BLOCK_BYTES)
    least = most = last = 0
    while not last:
        if len(view) - pos < 3:
            raise ProtocolError("zstd data is cut short", at=pos)
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
