"""The four codecs: round trips, data of other writers, and malicious inputs."""

import gzip
import random
import struct
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.wire import compression
from ottla.protocol.wire.compression import (
    LEVELS,
    MAX_FRAMES,
    PIECE_BYTES,
    Compression,
    compress,
    compress_in_pieces,
    decompress,
    decompress_in_pieces,
)
from ottla.protocol.wire.errors import ProtocolError

MIB = 1024 * 1024
SQUEEZED = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
each_codec = pytest.mark.parametrize("codec", Compression)
each_real_codec = pytest.mark.parametrize("codec", SQUEEZED)
XERIAL = bytes.fromhex("82534e41505059000000000100000001")

JAVA_PLAIN = bytes.fromhex(
    "62000000046b313e6f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e650402680278086e6f6e6501"
    "1400c80102010674776f0010000104046b330100"
)
"""Three encoded records, and below what Kafka 4.3.1's Java client compresses them to."""

JAVA_VECTORS = {
    Compression.GZIP: (
        "1f8b08000000000000ff4b62606060c936b4cbcf4b55c083599832982a38f2802c461186138c4c8c6c25e5f90c020c8c2c2c"
        "d9c68c0c005bc23bb946000000"
    ),
    Compression.SNAPPY: (
        "82534e4150505900000000010000000100000031462c62000000046b313e6f6e65206a0400780402680278086e6f6e650114"
        "00c80102010674776f0010000104046b330100"
    ),
    Compression.LZ4: (
        "04224d1860408231000000cf62000000046b313e6f6e6520040008f0100402680278086e6f6e65011400c80102010674776f"
        "0010000104046b33010000000000"
    ),
    Compression.ZSTD: (
        "28b52ffd0058940100b40262000000046b313e6f6e65200402680278086e6f6e65011400c80102010674776f001000010404"
        "6b3301000100872e09010000"
    ),
}


@cache
def text(size: int) -> bytes:
    rng = random.Random(size)
    return b"".join(b'{"id": %d, "x": %d}' % (i, rng.randrange(10**9)) for i in range(size // 20 + 1))[:size]


def deflated_zeros(mib: int) -> bytes:
    """Build a gzip member of zeros from one flushed block, because zlib would take seconds."""
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    flushed = block.compress(bytes(MIB)) + block.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(7) + flushed * mib + b"\x03\x00" + bytes(8)


def zstd_frame(blocks: bytes, *, header: bytes = b"\x00\x58") -> bytes:
    """Build a zstd frame from blocks, by default of unknown size and with a window of 2 MiB."""
    return b"\x28\xb5\x2f\xfd" + header + blocks


def zstd_block(kind: int, size: int, body: bytes, *, last: bool) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + body


def zstd_zeros(mib: int) -> bytes:
    repeated = zstd_block(1, 128 * 1024, b"\x00", last=False)
    return zstd_frame(repeated * (mib * 8) + zstd_block(0, 0, b"", last=True))


def zstd_compressed_zeros(mib: int, *, size: int) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj(size=size)
    return b"".join([stream.compress(bytes(MIB)) for _ in range(mib)]) + stream.flush()


# Zeros compressed to at most about 1 MiB: a gigabyte, or the most that the codec can hold.
BOMBS: dict[str, tuple[Compression, Callable[[], bytes]]] = {
    "gzip": (Compression.GZIP, lambda: deflated_zeros(1000)),
    "snappy": (Compression.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(21 * MIB)))),
    "snappy framed": (Compression.SNAPPY, lambda: compress(Compression.SNAPPY, bytes(21 * MIB))),
    "lz4": (Compression.LZ4, lambda: compress(Compression.LZ4, bytes(254 * MIB))),
    "lz4 in blocks of 4 MiB": (Compression.LZ4, lambda: lz4.frame.compress(bytes(254 * MIB), block_size=7)),
    "zstd in repeated blocks": (Compression.ZSTD, lambda: zstd_zeros(1024)),
    "zstd in many frames": (Compression.ZSTD, lambda: zstandard.ZstdCompressor().compress(bytes(MIB)) * 1024),
    "zstd that says so": (Compression.ZSTD, lambda: zstd_compressed_zeros(1024, size=1024 * MIB)),
    "zstd that does not": (Compression.ZSTD, lambda: zstd_compressed_zeros(1024, size=-1)),
}


@each_codec
@given(data=st.binary(max_size=3000), repeats=st.integers(1, 100))
@settings(max_examples=50, deadline=None)
def test_compressed_data_round_trips(codec: Compression, data: bytes, repeats: int) -> None:
    plain = data * repeats
    assert decompress(codec, compress(codec, plain), limit=len(plain)) == plain


@each_codec
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 64 * 1024 + 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_sizes_around_block_boundaries_round_trip(codec: Compression, size: int) -> None:
    plain = text(size)
    for data in (plain, bytearray(plain), memoryview(plain)):
        squeezed = compress(codec, data)
        for form in (squeezed, bytearray(squeezed), memoryview(b"--" + squeezed)[2:]):
            assert decompress(codec, form, limit=size) == plain


@each_codec
def test_the_limit_is_exact(codec: Compression) -> None:
    for size in (1, 1000, 200_000):
        squeezed = compress(codec, text(size))
        assert len(decompress(codec, squeezed, limit=size)) == size
        with pytest.raises(ProtocolError, match=f"more than {size - 1} bytes"):
            decompress(codec, squeezed, limit=size - 1)


@each_codec
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, MIB + 1, 3 * MIB])
def test_pieces_have_the_same_bytes_and_only_the_last_is_small(codec: Compression, size: int) -> None:
    plain = text(size)
    squeezed = compress(codec, plain)
    pieces = list(decompress_in_pieces(codec, squeezed, limit=size))
    assert b"".join(pieces) == plain
    assert all(PIECE_BYTES <= len(piece) < 2 * PIECE_BYTES for piece in pieces[:-1])
    assert (
        len(pieces) == -(-size // PIECE_BYTES) if codec is Compression.NONE else len(pieces) <= 1 + size // PIECE_BYTES
    )
    if size:
        with pytest.raises(ProtocolError, match=f"more than {size - 1} bytes"):
            list(decompress_in_pieces(codec, squeezed, limit=size - 1))


@each_codec
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024 + 1, MIB, 3 * MIB + 7])
@pytest.mark.parametrize("piece_bytes", [1000, MIB])
@pytest.mark.parametrize("is_size_known", [True, False])
def test_every_reader_accepts_data_compressed_in_pieces(
    codec: Compression, size: int, piece_bytes: int, is_size_known: bool
) -> None:
    plain = text(size)
    pieces = (plain[start : start + piece_bytes] for start in range(0, size, piece_bytes))
    squeezed = b"".join(compress_in_pieces(codec, pieces, size if is_size_known else None))
    assert decompress(codec, squeezed, limit=size) == plain
    if codec in (Compression.NONE, Compression.SNAPPY):
        assert squeezed == compress(codec, plain)
    assert len(squeezed) <= len(compress(codec, plain)) * 1.1 + 16


@each_real_codec
def test_only_empty_data_fits_a_limit_of_zero(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b""), limit=0) == b""
    with pytest.raises(ProtocolError, match="more than 0 bytes"):
        decompress(codec, compress(codec, b"a"), limit=0)


def test_a_zstd_frame_without_a_size_obeys_the_limit_exactly() -> None:
    for size in (1, 1000, 200_000):
        squeezed = zstandard.ZstdCompressor(write_content_size=False).compress(text(size))
        assert decompress(Compression.ZSTD, squeezed, limit=size) == text(size)
        with pytest.raises(ProtocolError, match="more than"):
            decompress(Compression.ZSTD, squeezed, limit=size - 1)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_are_those_of_kafka(codec: Compression) -> None:
    lowest, highest, default = LEVELS[codec]
    plain = text(5000)
    for level in {lowest, 1, highest, default}:
        assert decompress(codec, compress(codec, plain, level), limit=5000) == plain
    assert compress(codec, plain, default) == compress(codec, plain)
    for level in (lowest - 3, highest + 1):
        with pytest.raises(ValueError, match="must be from"):
            compress(codec, plain, level)


def test_snappy_is_framed_as_java_frames_it() -> None:
    assert compress(Compression.SNAPPY, b"") == XERIAL
    assert compress(Compression.SNAPPY, b"abc") == XERIAL + bytes.fromhex("00000005 03 08 616263")
    framed = compress(Compression.SNAPPY, text(70_000))
    pos, sizes = 16, []
    while pos < len(framed):
        (length,) = struct.unpack_from(">i", framed, pos)
        sizes.append(cramjam.snappy.decompress_raw_len(framed[pos + 4 : pos + 4 + length]))
        pos += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


@pytest.mark.parametrize(("codec", "vector"), JAVA_VECTORS.items())
def test_data_of_java_is_read(codec: Compression, vector: str) -> None:
    squeezed = bytes.fromhex(vector)
    assert decompress(codec, squeezed, limit=70) == JAVA_PLAIN


def test_concatenated_xerial_streams_are_read() -> None:
    twice = compress(Compression.SNAPPY, b"one ") + compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, twice, limit=100) == b"one two"


def test_raw_snappy_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(text(100_000))), limit=MIB) == text(100_000)


def test_lz4_frames_have_independent_64_kib_blocks_and_no_checksums() -> None:
    frame = compress(Compression.LZ4, text(200_000))
    version_1_independent, blocks_of_64_kib = 0b0110_0000, 0b0100_0000
    assert frame[:6] == bytes.fromhex("04224d18") + bytes((version_1_independent, blocks_of_64_kib))
    assert frame[-4:] == bytes(4)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_any_kind_are_read(linked: bool, sized: bool, checked: bool, block_size: int) -> None:
    frame = lz4.frame.compress(
        text(300_000),
        block_size=block_size,
        block_linked=linked,
        store_size=sized,
        content_checksum=checked,
        block_checksum=checked,
    )
    assert decompress(Compression.LZ4, frame, limit=300_000) == text(300_000)


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("level", [-50, 3, 22])
def test_zstd_frames_of_any_kind_are_read(sized: bool, checked: bool, level: int) -> None:
    writer = zstandard.ZstdCompressor(level=level, write_content_size=sized, write_checksum=checked)
    assert decompress(Compression.ZSTD, writer.compress(text(300_000)), limit=300_000) == text(300_000)


@pytest.mark.parametrize("level", [3, 19, 22])
def test_zstd_streams_are_read(level: int) -> None:
    # As Java's stream writes it: the size is not known when the header goes out, and the window is the level's.
    stream = zstandard.ZstdCompressor(level=level).compressobj()
    parts = [stream.compress(text(300_000)[i : i + 9999]) for i in range(0, 300_000, 9999)]
    assert decompress(Compression.ZSTD, b"".join((*parts, stream.flush())), limit=300_000) == text(300_000)


def test_zstd_blocks_of_every_kind_and_skippable_frames_are_read() -> None:
    raw = zstd_block(0, 5, b"hello", last=False)
    repeated = zstd_block(1, 3, b"!", last=True)
    skippable = b"\x5f\x2a\x4d\x18" + struct.pack("<I", 4) + b"note"
    assert decompress(Compression.ZSTD, skippable + zstd_frame(raw + repeated) + skippable, limit=8) == b"hello!!!"


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_concatenated_frames_are_read_up_to_the_limit(codec: Compression) -> None:
    frames = [compress(codec, b"%d," % i) for i in range(MAX_FRAMES + 1)]
    expected = b"".join(b"%d," % i for i in range(MAX_FRAMES))
    assert decompress(codec, b"".join(frames[:-1]), limit=len(expected)) == expected
    with pytest.raises(ProtocolError, match="compressed frames"):
        decompress(codec, b"".join(frames), limit=MIB)


def test_gzip_with_a_name_and_a_comment_is_read() -> None:
    named = bytearray(gzip.compress(b"plain", mtime=1))
    named[3] = 0x18
    named[10:10] = b"name\x00comment\x00"
    assert decompress(Compression.GZIP, named, limit=5) == b"plain"


@each_real_codec
def test_bytes_after_the_end_are_rejected(codec: Compression) -> None:
    with pytest.raises(ProtocolError):
        decompress(codec, compress(codec, text(1000)) + b"more bytes", limit=MIB)


@each_real_codec
def test_data_truncated_at_any_byte_is_rejected(codec: Compression) -> None:
    whole = compress(codec, text(600))
    for cut in range(len(whole)):
        # Xerial framing has no end mark, so an empty stream after the header is valid.
        if codec is Compression.SNAPPY and cut == 16:
            continue
        with pytest.raises(ProtocolError):
            decompress(codec, whole[:cut], limit=MIB)


@each_real_codec
def test_flipped_bytes_give_data_or_a_protocol_error(codec: Compression) -> None:
    rng = random.Random(codec)
    sources = [compress(codec, text(size)) for size in (0, 40, 3000, 100_000)]
    if codec is Compression.SNAPPY:
        sources += [bytes(cramjam.snappy.compress_raw(text(3000)))]
    if codec is Compression.ZSTD:
        sources += [zstandard.ZstdCompressor(write_content_size=False).compress(text(3000)), zstd_zeros(1)]
    for _ in range(3000):
        broken = bytearray(rng.choice(sources))
        # Change the headers and lengths at the start.
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(min(len(broken), rng.choice((24, 1 << 30))))] = rng.randrange(256)
        try:
            assert len(decompress(codec, broken, limit=200_000)) <= 200_000
        except ProtocolError as error:
            assert str(error)  # noqa: PT017 (most inputs raise, some need not)


@each_real_codec
def test_flipped_bytes_give_the_same_data_or_an_error_in_pieces(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "PIECE_BYTES", 1000)
    rng = random.Random(codec + 10)
    sources = [compress(codec, text(size)) for size in (0, 40, 3000, 100_000)]
    if codec is Compression.ZSTD:
        sources += [zstandard.ZstdCompressor(write_content_size=False).compress(text(3000)), zstd_zeros(1)]

    def outcome(read: Callable[[], bytes]) -> bytes | None:
        try:
            return read()
        except ProtocolError:
            return None

    for _ in range(3000):
        broken = bytearray(rng.choice(sources))
        for _ in range(rng.randint(0, 3)):
            broken[rng.randrange(min(len(broken), rng.choice((24, 1 << 30))))] = rng.randrange(256)
        del broken[rng.choice([len(broken), rng.randrange(len(broken))]) :]
        whole = outcome(lambda data=broken: decompress(codec, data, limit=200_000))  # type: ignore[misc]
        parts = outcome(lambda data=broken: b"".join(decompress_in_pieces(codec, data, limit=200_000)))  # type: ignore[misc]
        assert parts == whole


@each_real_codec
@given(junk=st.binary(max_size=200))
def test_any_bytes_give_data_or_a_protocol_error(codec: Compression, junk: bytes) -> None:
    prefixes = {Compression.GZIP: b"\x1f\x8b\x08\x00", Compression.SNAPPY: XERIAL, Compression.LZ4: b"\x04\x22\x4d\x18"}
    for data in (junk, prefixes.get(codec, b"\x28\xb5\x2f\xfd") + junk):
        try:
            assert len(decompress(codec, data, limit=1000)) <= 1000
        except ProtocolError:
            continue


def test_snappy_that_declares_more_than_it_can_hold_is_rejected() -> None:
    for declared in (b"\xff\xff\xff\x3f", b"\xff\xff\xff\xff\x0f", b"\xe9\x07"):
        with pytest.raises(ProtocolError, match="cannot hold"):
            decompress(Compression.SNAPPY, declared + b"\x00" * 40, limit=1 << 40)


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 100])
def test_wrong_snappy_block_lengths_are_rejected(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"block of {length} bytes"):
        decompress(Compression.SNAPPY, XERIAL + struct.pack(">I", length) + b"\x01\x00a", limit=MIB)


def test_zstd_frames_that_declare_a_wrong_size_are_rejected() -> None:
    blocks = zstd_block(0, 5, b"hello", last=True)
    for declared in (0, 4, 6, 2**31, 2**63):
        with pytest.raises(ProtocolError, match="declares"):
            decompress(
                Compression.ZSTD, zstd_frame(blocks, header=b"\xe0" + struct.pack("<Q", declared)), limit=1 << 40
            )
    held = bytearray(zstandard.ZstdCompressor().compress(bytes(1000)))
    assert held[4:7] == b"\x60" + struct.pack("<H", 1000 - 256)
    held[5:7] = struct.pack("<H", 900 - 256)
    with pytest.raises(ProtocolError, match="corrupt zstd"):
        decompress(Compression.ZSTD, held, limit=MIB)


def test_an_lz4_frame_that_declares_a_wrong_size_is_rejected() -> None:
    frame = bytearray(lz4.frame.compress(text(1000), store_size=True))
    frame[6:14] = struct.pack("<Q", 1 << 40)
    with pytest.raises(ProtocolError):
        decompress(Compression.LZ4, frame, limit=MIB)


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_is_rejected_in_little_memory(name: str, tmp_path: Path) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    assert len(bomb) <= 1.1 * MIB
    limit = 8 * MIB
    tracemalloc.start()
    try:
        started = time.perf_counter()
        with pytest.raises(ProtocolError, match="more than 8388608 bytes"):
            decompress(codec, bomb, limit=limit)
        taken = time.perf_counter() - started
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit + 4 * MIB
    assert taken < 1
    if sys.platform == "linux":
        assert resident_growth_mib(codec, bomb, tmp_path) < 16 + 16


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux shows it")
@pytest.mark.parametrize("name", [name for name in BOMBS if name != "snappy"])
def test_a_decompression_bomb_is_read_in_the_memory_of_a_few_pieces(name: str, tmp_path: Path) -> None:
    """Raw snappy is one block, which is decompressed as a whole. The memory of the other codecs does not grow."""
    codec, make = BOMBS[name]
    assert resident_growth_mib(codec, make(), tmp_path, in_pieces=True) < 8


def resident_growth_mib(codec: Compression, bomb: bytes, folder: Path, *, in_pieces: bool = False) -> int:
    """Measure the memory of the libraries, which tracemalloc does not see, as the peak of a child process."""
    (folder / "bomb").write_bytes(bomb)
    child = """
        import pathlib, re, sys
        from ottla.protocol.wire.compression import Compression, decompress, decompress_in_pieces
        from ottla.protocol.wire.errors import ProtocolError
        def peak():
            status = pathlib.Path("/proc/self/status").read_text()
            return int(re.search("VmHWM:\\s*([0-9]+) kB", status).group(1)) // 1024
        codec, bomb = Compression(int(sys.argv[1])), pathlib.Path(sys.argv[2]).read_bytes()
        before = peak()
        try:
            if sys.argv[3:]:
                for piece in decompress_in_pieces(codec, bomb, limit=1 << 30):
                    pass
            else:
                decompress(codec, bomb, limit=16 * 1024 * 1024)
        except ProtocolError:
            pass
        print(peak() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(child), str(codec.value), str(folder / "bomb")]
    if in_pieces:
        command.append("in pieces")
    return int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def test_a_million_empty_frames_are_rejected_quickly() -> None:
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        empty = compress(codec, b"")
        started = time.perf_counter()
        with pytest.raises(ProtocolError, match="compressed frames"):
            decompress(codec, empty * (MIB // len(empty)), limit=MIB)
        assert time.perf_counter() - started < 1
