"""The offset map keeps the newest offset of a key, within its memory."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from ottla.storage.compaction.offset_map import OffsetMap, capacity_of

Entry = tuple[int, int, bytes | None, bool]


def entries(*keys: bytes | None, start: int = 0) -> Iterator[Entry]:
    return ((start + number, 0, key, False) for number, key in enumerate(keys))


def test_the_newest_offset_of_a_key_counts() -> None:
    offsets = OffsetMap(10_000)
    assert offsets.add(entries(b"a", b"b", b"a", None), 0)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c")) == (2, 1, -1)
    assert len(offsets) == 2


def test_records_before_the_first_dirty_one_do_not_count() -> None:
    offsets = OffsetMap(10_000, 2)
    offsets.add(entries(b"a", b"b", b"c"), 2)
    assert (offsets.get(b"a"), offsets.get(b"c")) == (-1, 2)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_keys_of_any_length_are_told_apart(size: int) -> None:
    offsets = OffsetMap(10_000)
    keys = [bytes([number]) * size for number in range(3 if size else 1)]
    offsets.add(entries(*keys), 0)
    assert [offsets.get(key) for key in keys] == list(range(len(keys)))
    assert offsets.get(b"x" * size + b"y") == -1


def test_a_full_map_ends_behind_the_last_record_that_fit() -> None:
    offsets = OffsetMap(1_000, 50, 0.5)
    keys = [b"%d" % number for number in range(offsets.capacity)]
    assert offsets.add(entries(*keys[1:], start=50), 50)
    assert offsets.end_offset == 50
    assert not offsets.add(entries(None, keys[0], None, keys[0], start=100), 50)
    assert offsets.utilization == 1.0
    assert offsets.end_offset == 102
    assert not offsets.add(entries(keys[0], start=200), 50)
    assert (offsets.end_offset, offsets.get(keys[0])) == (102, 101)


def test_memory_without_room_for_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(100)


@pytest.mark.parametrize("memory_bytes", [50_000, 1 << 20, 3_333_333, 8 << 20])
def test_the_map_stays_within_its_memory(memory_bytes: int) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        offsets = OffsetMap(memory_bytes, 0, 1.0)
        fits = offsets.add(((number, 0, b"%040d" % number, False) for number in range(1 << 30, 1 << 31)), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not fits
    assert offsets.end_offset == (1 << 30) + capacity_of(memory_bytes)
    assert memory_bytes * 0.5 < peak <= memory_bytes + 2_000
