"""Sparse indexes: searches in memory and in the file equal those in a plain list."""

from bisect import bisect_left, bisect_right
from random import Random

import pytest

from ottla.storage.log.index import CorruptIndex, Index, Layout
from tests.support.simulated_disk import SimulatedDisk

PATH = "/i"
ENTRIES = [(3, 10), (5, 20), (9, 30)]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


def filled(disk: SimulatedDisk, entries: list[tuple[int, int]], *, spill: bool = False) -> Index:
    index = Index(disk, PATH, Layout.OFFSET, new=True)
    for key, value in entries:
        if spill:
            index.spill()
        index.append(key, value)
    return index


@pytest.fixture(params=["in memory", "in the file", "half of each"])
def index(request: pytest.FixtureRequest, disk: SimulatedDisk) -> Index:
    if request.param == "half of each":
        index = filled(disk, ENTRIES[:2])
        index.write()
        index.append(*ENTRIES[2])
        return index
    index = filled(disk, ENTRIES)
    if request.param == "in the file":
        index.write()
        return Index(disk, PATH, Layout.OFFSET, new=False)
    return index


@pytest.mark.parametrize(
    ("key", "found"), [(0, None), (2, None), (3, (3, 10)), (4, (3, 10)), (5, (5, 20)), (8, (5, 20)), (99, (9, 30))]
)
def test_the_floor_is_the_last_entry_not_above(index: Index, key: int, found: tuple[int, int] | None) -> None:
    assert index.floor(key) == found


@pytest.mark.parametrize(
    ("value", "found"), [(0, (3, 10)), (10, (3, 10)), (11, (5, 20)), (20, (5, 20)), (30, (9, 30)), (31, None)]
)
def test_the_ceiling_is_the_first_entry_not_below(index: Index, value: int, found: tuple[int, int] | None) -> None:
    assert index.ceiling_value(value) == found


@pytest.mark.parametrize("bound", range(5, 36, 5))
def test_truncating_keeps_the_entries_with_smaller_values(index: Index, bound: int) -> None:
    index.truncate(bound)
    assert list(index.entries()) == [entry for entry in ENTRIES if entry[1] < bound]
    index.append(100, 100)
    assert index.last() == (100, 100)


def test_an_empty_index_finds_nothing(disk: SimulatedDisk) -> None:
    for new in (True, False):
        index = Index(disk, PATH, Layout.TIME, new=new)
        assert (len(index), index.last(), index.floor(5), index.ceiling_value(0)) == (0, None, None, None)


@pytest.mark.parametrize("new", [True, False])
def test_writing_an_empty_index_makes_its_file(disk: SimulatedDisk, new: bool) -> None:
    Index(disk, PATH, Layout.TIME, new=new).write()
    assert disk.listing() == {PATH: b""}


def test_entries_stay_in_memory_until_they_are_many(disk: SimulatedDisk) -> None:
    index = filled(disk, [(number, number) for number in range(511)], spill=True)
    assert disk.listing() == {}
    index.append(511, 511)
    calls = disk.calls
    index.append(512, 512)
    assert disk.calls == calls, "an append never writes, so that it cannot fail"
    index.spill()
    assert len(disk.listing()[PATH]) == 513 * 8


def test_a_write_that_fails_loses_no_entries(disk: SimulatedDisk) -> None:
    for calls in (1, 2):
        index = filled(disk, ENTRIES)
        disk.fail_after(calls)
        with pytest.raises(OSError, match="error"):
            index.write()
        assert list(index.entries()) == ENTRIES
        index.write()
        assert list(Index(disk, PATH, Layout.OFFSET, new=False).entries()) == ENTRIES
        disk.remove(PATH)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_entries_are_found_as_in_a_list(seed: int, layout: Layout) -> None:
    random = Random(seed)
    disk = SimulatedDisk(seed)
    index = Index(disk, PATH, layout, new=True)
    entries: list[tuple[int, int]] = []
    key = value = 0
    for _ in range(4000):
        step = random.random()
        if step < 0.97 or not entries:
            key, value = key + random.randint(1, 5), value + random.randint(1, 9)
            index.append(key, value)
            entries.append((key, value))
            index.spill()
        elif step < 0.98:
            index.write()
            index = Index(disk, PATH, layout, new=False)
        else:
            cut = random.choice(entries[-40:])
            index.truncate(cut[1])
            del entries[entries.index(cut) :]
            key, value = entries[-1] if entries else (0, 0)
    assert list(index.entries()) == entries
    assert len(index) == len(entries) > 1000
    for _ in range(500):
        key, value = random.randint(0, entries[-1][0] + 2), random.randint(0, entries[-1][1] + 2)
        at = bisect_right(entries, key, key=lambda entry: entry[0]) - 1
        assert index.floor(key) == (entries[at] if at >= 0 else None)
        at = bisect_left(entries, value, key=lambda entry: entry[1])
        assert index.ceiling_value(value) == (entries[at] if at < len(entries) else None)


def test_a_clean_index_passes_its_check(index: Index) -> None:
    index.write()
    index.check()


def test_a_missing_file_is_detected(disk: SimulatedDisk) -> None:
    with pytest.raises(CorruptIndex, match="missing"):
        Index(disk, PATH, Layout.OFFSET, new=False).check()


@pytest.mark.parametrize("content", [b"1234567", bytes(8) + bytes(8), b"\0" * 7 + b"\1" + bytes(8) * 2])
def test_an_invalid_file_is_detected(disk: SimulatedDisk, content: bytes) -> None:
    file = disk.create(PATH)
    disk.pwrite(file, content, 0)
    disk.close(file)
    with pytest.raises(CorruptIndex):
        Index(disk, PATH, Layout.OFFSET, new=False).check()


def test_clearing_empties_memory_and_file(index: Index) -> None:
    index.clear()
    assert list(index.entries()) == []
    index.append(1, 1)
    assert index.last() == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_cached_search_never_returns_removed_entries(disk: SimulatedDisk, seed: int) -> None:
    chance = Random(seed)
    index = Index(disk, PATH, Layout.OFFSET, new=True)
    model: list[tuple[int, int]] = []
    for _ in range(3_000):
        act = chance.random()
        if act < 0.5:
            key = (model[-1][0] if model else 0) + chance.randrange(3)
            value = (model[-1][1] if model else 0) + chance.randrange(1, 9)
            index.append(key, value)
            model.append((key, value))
        elif act < 0.53:
            index.write()
        elif act < 0.535 and model:
            bound = chance.choice(model)[1]
            index.truncate(bound)
            model = [entry for entry in model if entry[1] < bound]
        else:
            key = chance.randrange((model[-1][0] if model else 0) + 5)
            expected = [entry for entry in model if entry[0] <= key]
            assert index.floor(key) == (expected[-1] if expected else None)


def test_sequential_reads_rarely_open_the_file(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(2 * number, 10 * number) for number in range(2000)]
    filled(disk, entries).write()
    index = Index(disk, PATH, Layout.OFFSET, new=False)
    opened: list[str] = []

    def open_file(path: str) -> int:
        opened.append(path)
        return SimulatedDisk.open(disk, path)

    monkeypatch.setattr(disk, "open", open_file)
    for key, value in entries:
        assert index.floor(key + 1) == (key, value)
        assert index.ceiling_value(value) == (key, value)
    assert len(opened) < len(entries) / 50
