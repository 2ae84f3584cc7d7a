"""Leader epochs: assignment, lookup, truncation at both ends, and the checkpoint file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.disk import SystemDisk
from ottla.storage.log.epochs import EPOCHS_FILE, UNDEFINED, CorruptEpochs, LeaderEpoch, LeaderEpochs

DISK = SystemDisk()
THREE = [(2, 0), (4, 10), (5, 30)]


def example() -> LeaderEpochs:
    return LeaderEpochs(THREE)


def test_without_entries_everything_is_undefined() -> None:
    epochs = LeaderEpochs()
    assert (len(epochs), epochs.latest, epochs.previous) == (0, -1, -1)
    assert epochs.end_offset_for(0, 10) == UNDEFINED
    assert epochs.end_offset_for(-1, 10) == UNDEFINED
    assert epochs.epoch_for_offset(0) == -1


def test_a_later_epoch_is_added() -> None:
    epochs = example()
    epochs.assign(7, 40)
    assert epochs.entries == (*THREE, (7, 40))
    assert (epochs.latest, epochs.previous) == (7, 5)
    assert epochs.is_dirty


def test_the_latest_epoch_is_not_begun_again() -> None:
    epochs = example()
    epochs.assign(5, 30)
    epochs.assign(5, 35)
    assert epochs.entries == tuple(THREE)
    assert not epochs.is_dirty


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (5, 20, [(2, 0), (4, 10), (5, 20)]),
        (6, 30, [(2, 0), (4, 10), (6, 30)]),
        (6, 10, [(2, 0), (6, 10)]),
        (3, 40, [(2, 0), (3, 40)]),
        (0, 0, [(0, 0)]),
    ],
)
def test_a_new_entry_replaces_conflicting_ones(epoch: int, offset: int, expected: list[tuple[int, int]]) -> None:
    epochs = example()
    epochs.assign(epoch, offset)
    assert epochs.entries == tuple(expected)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 5), (5, -1)])
def test_negative_entries_are_refused(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="leader epoch"):
        example().assign(epoch, offset)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, UNDEFINED), (5, (5, 99)), (6, UNDEFINED), (4, (4, 30)), (3, (2, 10)), (2, (2, 10)), (1, (1, 0)), (0, (0, 0))],
)
def test_an_epoch_ends_where_the_next_known_one_begins(epoch: int, expected: tuple[int, int]) -> None:
    assert example().end_offset_for(epoch, 99) == expected


def test_an_epoch_before_the_first_ends_where_the_first_begins_under_its_own_number() -> None:
    epochs = example()
    epochs.truncate_from_start(7)
    assert epochs.end_offset_for(1, 99) == (1, 7)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (9, 2), (10, 4), (29, 4), (30, 5), (1000, 5)])
def test_an_offset_belongs_to_the_epoch_that_began_last_before_it(offset: int, epoch: int) -> None:
    assert example().epoch_for_offset(offset) == epoch


def test_an_offset_before_the_first_epoch_belongs_to_none() -> None:
    assert LeaderEpochs([(3, 5)]).epoch_for_offset(4) == -1


@pytest.mark.parametrize(
    ("offset", "kept"), [(31, THREE), (30, THREE[:2]), (11, THREE[:2]), (10, THREE[:1]), (0, []), (-1, THREE)]
)
def test_cutting_the_end_removes_epochs_from_there_on(offset: int, kept: list[tuple[int, int]]) -> None:
    epochs = example()
    epochs.truncate_from_end(offset)
    assert epochs.entries == tuple(kept)
    assert epochs.latest == (kept[-1][0] if kept else -1)
    assert epochs.is_dirty == (kept != THREE)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, THREE),
        (5, [(2, 5), (4, 10), (5, 30)]),
        (10, [(4, 10), (5, 30)]),
        (11, [(4, 11), (5, 30)]),
        (99, [(5, 99)]),
        (-1, THREE),
    ],
)
def test_cutting_the_start_moves_the_epoch_of_that_offset(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = example()
    epochs.truncate_from_start(offset)
    assert epochs.entries == tuple(left)
    assert epochs.is_dirty == (left != THREE)


def test_clearing_leaves_nothing() -> None:
    epochs = example()
    epochs.clear()
    assert (len(epochs), epochs.latest, epochs.is_dirty) == (0, -1, True)


def test_the_file_is_kafkas_text(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    for epoch, offset in THREE:
        epochs.assign(epoch, offset)
    epochs.flush(DISK, str(tmp_path))
    assert (tmp_path / EPOCHS_FILE).read_text() == "0\n3\n2 0\n4 10\n5 30\n"
    assert not epochs.is_dirty
    read = LeaderEpochs.read(DISK, str(tmp_path))
    assert read.entries == epochs.entries
    assert not read.is_dirty


def test_nothing_is_written_before_a_flush_nor_without_a_change(tmp_path: Path) -> None:
    epochs = example()
    epochs.flush(DISK, str(tmp_path))
    assert not list(tmp_path.iterdir())
    epochs.assign(6, 50)
    assert not list(tmp_path.iterdir())


def test_a_failed_flush_is_tried_again(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    epochs.assign(1, 0)
    with pytest.raises(FileNotFoundError):
        epochs.flush(DISK, str(tmp_path / "missing"))
    assert epochs.is_dirty
    epochs.flush(DISK, str(tmp_path))
    assert LeaderEpochs.read(DISK, str(tmp_path)).entries == ((1, 0),)


def test_a_missing_or_empty_file_holds_no_epochs(tmp_path: Path) -> None:
    assert len(LeaderEpochs.read(DISK, str(tmp_path))) == 0
    (tmp_path / EPOCHS_FILE).touch()
    assert len(LeaderEpochs.read(DISK, str(tmp_path))) == 0


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n",
        "0\n2\n1 0\n",
        "0\n1\n1 0\n2 5\n",
        "0\n1\n1\n",
        "0\nx\n",
        "0\n1\na b\n",
        "0\n1\n1 -5\n",
        "0\n1\n1 é\n",
    ],
)
def test_a_file_that_no_broker_writes_is_refused(text: str) -> None:
    with pytest.raises(CorruptEpochs):
        LeaderEpochs.decode(text.encode())


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["assign", "truncate_from_end", "truncate_from_start"]), st.integers(0, 6), st.integers(0, 30)
    )
)


@given(OPERATIONS)
def test_entries_rise_in_both_columns_and_survive_the_file(operations: list[tuple[str, int, int]]) -> None:
    epochs = LeaderEpochs()
    for name, epoch, offset in operations:
        getattr(epochs, name)(*((epoch, offset) if name == "assign" else (offset,)))
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs(epochs))
        assert epochs.latest == (epochs.entries[-1].epoch if epochs.entries else -1)
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries


def pairs(epochs: LeaderEpochs) -> list[tuple[LeaderEpoch, LeaderEpoch]]:
    return list(zip(epochs.entries, epochs.entries[1:], strict=False))
