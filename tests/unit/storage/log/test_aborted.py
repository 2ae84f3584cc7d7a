"""The index of aborted transactions: entries on disk, ranges of a fetch, and a torn entry after a crash."""

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.disk import SystemDisk
from ottla.storage.log.aborted import ENTRY_BYTES, Aborted, AbortedTransactions
from ottla.storage.log.index import CorruptIndex

DISK = SystemDisk()
ENTRIES = [Aborted(7, 0, 10, 2), Aborted(8, 2, 20, 15), Aborted(7, 15, 30, 31), Aborted(9, 35, 50, 51)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000000.txnindex")


def filled(path: str) -> AbortedTransactions:
    index = AbortedTransactions(DISK, path, 0, exists=False)
    for entry in ENTRIES:
        index.append(entry)
    return index


def test_a_segment_without_aborts_has_no_file(path: str) -> None:
    index = AbortedTransactions(DISK, path, 0, exists=False)
    assert index.read() == []
    assert index.collect(0, 100) == ([], False)
    assert index.is_empty
    index.truncate(0)
    index.reset()
    index.check()
    index.sync()
    index.delete()
    assert not Path(path).exists()


def test_the_first_entry_makes_the_file(path: str) -> None:
    index = AbortedTransactions(DISK, path, 0, exists=False)
    index.append(Aborted(1, 2, 3, 4))
    index.sync()
    assert index.exists
    assert not index.is_empty
    assert Path(path).read_bytes() == bytes.fromhex(
        "00000000000000000001000000000000000200000000000000030000000000000004"
    )
    assert ENTRY_BYTES == 34


def test_entries_are_read_back_by_another_start(path: str) -> None:
    filled(path).close()
    again = AbortedTransactions(DISK, path, 0, exists=True)
    assert again.read() == ENTRIES
    again.append(Aborted(5, 55, 60, 61))
    assert again.read() == [*ENTRIES, Aborted(5, 55, 60, 61)]


def test_markers_come_in_the_order_of_their_offsets(path: str) -> None:
    index = filled(path)
    with pytest.raises(ValueError, match="the previous one at 50"):
        index.append(Aborted(1, 40, 50, 51))
    again = AbortedTransactions(DISK, path, 0, exists=True)
    with pytest.raises(ValueError, match="the previous one at 50"):
        again.append(Aborted(1, 40, 49, 51))


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "complete"),
    [
        (0, 100, ENTRIES, False),
        (0, 32, ENTRIES[:3], True),  # the last would begin later, and its stable offset ends the search
        (0, 31, ENTRIES[:3], True),
        (0, 2, ENTRIES[:1], True),
        (10, 15, ENTRIES[:2], True),
        (11, 15, ENTRIES[1:2], True),
        (21, 100, ENTRIES[2:], False),
        (51, 100, [], False),
    ],
)
def test_a_fetch_learns_of_the_aborts_that_it_overlaps(
    path: str, fetch_offset: int, upper_bound: int, expected: list[Aborted], complete: bool
) -> None:
    assert filled(path).collect(fetch_offset, upper_bound) == (expected, complete)


@pytest.mark.parametrize(("offset", "kept"), [(51, 4), (50, 3), (31, 3), (30, 2), (10, 0), (0, 0)])
def test_truncating_removes_the_transactions_whose_marker_is_truncated(path: str, offset: int, kept: int) -> None:
    index = filled(path)
    index.truncate(offset)
    assert index.read() == ENTRIES[:kept]
    assert Path(path).stat().st_size == kept * ENTRY_BYTES
    index.append(Aborted(3, 41, 51, 52))
    assert index.read() == [*ENTRIES[:kept], Aborted(3, 41, 51, 52)]


def test_a_reset_leaves_an_empty_file(path: str) -> None:
    index = filled(path)
    index.reset()
    assert index.is_empty
    assert Path(path).stat().st_size == 0
    index.append(ENTRIES[0])
    assert index.read() == ENTRIES[:1]


@pytest.mark.parametrize("torn", [1, 33])
def test_half_an_entry_is_overwritten(path: str, torn: int) -> None:
    filled(path).close()
    with Path(path).open("ab") as file:
        file.write(b"\xff" * torn)
    index = AbortedTransactions(DISK, path, 0, exists=True)
    assert index.read() == ENTRIES
    index.check()
    index.append(Aborted(3, 41, 51, 52))
    index.close()
    assert AbortedTransactions(DISK, path, 0, exists=True).read() == [*ENTRIES, Aborted(3, 41, 51, 52)]


def test_an_entry_of_another_version_is_corruption(path: str) -> None:
    filled(path).close()
    data = bytearray(Path(path).read_bytes())
    data[ENTRY_BYTES + 1] = 1
    Path(path).write_bytes(data)
    with pytest.raises(CorruptIndex, match="entry 1 has version 1"):
        AbortedTransactions(DISK, path, 0, exists=True).check()


def test_an_entry_from_before_the_segment_is_corruption(path: str) -> None:
    filled(path).close()
    AbortedTransactions(DISK, path, 10, exists=True).check()
    with pytest.raises(CorruptIndex, match="before the segment's base offset 11"):
        AbortedTransactions(DISK, path, 11, exists=True).check()


def test_the_file_follows_its_segment_to_other_names(path: str) -> None:
    index = filled(path)
    index.rename(path + ".swap")
    index.append(Aborted(3, 41, 51, 52))
    assert not Path(path).exists()
    index.close()
    assert len(index.read()) == 5
    index.rename(path + ".deleted")
    index.delete()
    assert not index.exists
    assert not Path(path + ".deleted").exists()


def test_without_a_file_a_rename_is_only_a_name(path: str) -> None:
    index = AbortedTransactions(DISK, path + ".cleaned", 0, exists=False)
    index.rename(path)
    assert not Path(path).exists()
    index.append(ENTRIES[0])
    assert Path(path).stat().st_size == ENTRY_BYTES


def test_a_leftover_of_an_earlier_life_is_not_taken_over(path: str) -> None:
    filled(path).close()
    index = AbortedTransactions(DISK, path, 0, exists=False)
    assert index.read() == []
    index.append(ENTRIES[0])
    assert index.read() == ENTRIES[:1]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40))), st.integers(0, 60), st.integers(0, 60))
def test_a_fetch_finds_every_overlapping_aborted_transaction(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], fetch_offset: int, size: int
) -> None:
    index = AbortedTransactions(DISK, str(tmp_path_factory.mktemp("aborted") / "index"), 0, exists=False)
    lasts = list(accumulate(step for step, _ in spans))
    ranges = [(max(0, last - length), last) for last, (_, length) in zip(lasts, spans, strict=True)]
    for number, (first, last) in enumerate(ranges):
        still_open = [other for other, _ in ranges[number + 1 :] if other <= last]
        index.append(Aborted(number, first, last, min(still_open, default=last + 1)))
    upper = fetch_offset + size
    found, _ = index.collect(fetch_offset, upper)
    overlapping = [(first, last) for first, last in ranges if last >= fetch_offset and first < upper]
    assert [(entry.first_offset, entry.last_offset) for entry in found] == overlapping
