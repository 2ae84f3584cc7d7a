"""Snapshot files: Kafka's layout, and every way in which a file can be damaged."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.disk import SystemDisk
from ottla.storage.log import producer_snapshot
from ottla.storage.log.producer_snapshot import (
    CorruptSnapshot,
    Producer,
    SnapshotEntry,
    decode,
    encode,
    snapshot_name,
    snapshot_offset,
)

DISK = SystemDisk()
IDLE = SnapshotEntry(5, 2, 14, 100, 4, 1_700_000_000_000, -1, -1)
OPEN = SnapshotEntry(6, 0, -1, -1, 0, 1_700_000_000_001, 3, 90)
# Written by Kafka 4.3.1's ProducerStateManager for the two entries above.
KAFKA_FILE = bytes.fromhex(
    "000194639b3600000002000000000000000500020000000e0000000000000064000000040000018bcfe56800ffffffffffff"
    "ffffffffffff00000000000000060000ffffffffffffffffffffffff000000000000018bcfe5680100000003000000000000"
    "005a"
)


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ENTRIES = st.lists(st.tuples(*map(ints, (64, 16, 32, 64, 32, 64, 32, 64))).map(lambda fields: SnapshotEntry(*fields)))


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_the_layout_is_kafkas() -> None:
    assert encode([IDLE, OPEN]) == KAFKA_FILE
    assert decode(KAFKA_FILE) == [IDLE, OPEN]


@given(ENTRIES)
def test_entries_survive_the_file(entries: list[SnapshotEntry]) -> None:
    assert decode(encode(entries)) == entries


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = str(tmp_path / snapshot_name(7))
    producer_snapshot.write(DISK, path, [IDLE, OPEN, IDLE])
    producer_snapshot.write(DISK, path, [OPEN])
    assert producer_snapshot.read(DISK, path) == [OPEN]


@pytest.mark.parametrize("size", range(len(KAFKA_FILE)))
def test_a_file_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode(KAFKA_FILE[:size])


@pytest.mark.parametrize("position", range(len(KAFKA_FILE)))
def test_a_changed_byte_is_found(position: int) -> None:
    changed = bytearray(KAFKA_FILE)
    changed[position] ^= 0x40
    with pytest.raises(CorruptSnapshot):
        decode(bytes(changed))


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_another_version_is_not_read(version: int) -> None:
    with pytest.raises(CorruptSnapshot, match=f"version {version}"):
        decode(sealed(KAFKA_FILE[6:], version))


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_the_bytes_do_not_hold_is_refused(count: int) -> None:
    with pytest.raises(CorruptSnapshot, match=f"{count} entries"):
        decode(sealed(struct.pack(">i", count) + KAFKA_FILE[10:]))


def test_a_file_is_named_after_its_offset() -> None:
    assert snapshot_name(42) == "00000000000000000042.snapshot"
    assert snapshot_offset("00000000000000000042.snapshot") == 42


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000042.log",
        "00000000000000000042.snapshot.deleted",
        "42.snapshot",
        "00000000000000000042",
        ".snapshot",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert snapshot_offset(name) is None


@pytest.mark.parametrize("entry", [IDLE, OPEN])
def test_a_producer_is_restored_as_it_was_saved(entry: SnapshotEntry) -> None:
    assert Producer.restored(entry).saved() == entry


def test_a_restored_producer_knows_its_last_batch_only_if_there_was_one() -> None:
    (batch,) = Producer.restored(IDLE).batches
    assert (batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset) == (10, 14, 96, 100)
    assert Producer.restored(OPEN).batches == []
    assert Producer.restored(OPEN).transaction_start == 90
