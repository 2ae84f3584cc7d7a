"""One segment: find, index, truncate and rename; a failing disk leaves it unchanged."""

import contextlib
import errno
from pathlib import Path

import pytest

from ottla.storage.disk import SystemDisk
from ottla.storage.log.aborted import ABORTED_SUFFIX, Aborted
from ottla.storage.log.index import CorruptIndex
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import DELETED, LOG_SUFFIX, SUFFIXES, SWAP, Segment
from tests.support.log_workbench import NOW, batch, check_indexes
from tests.support.simulated_disk import PowerLoss, SimulatedDisk, Survival

DIRECTORY = "/d"
BASE = 100


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_dir(DIRECTORY)
    disk.sync_dir("/")
    return disk


def grown(disk: SimulatedDisk, count: int = 20, *, interval: int = 100, step: int = 3) -> Segment:
    """Batches of three records, each of which takes `step` offsets."""
    segment = Segment.create(disk, DIRECTORY, BASE, now_ms=NOW)
    for number in range(count):
        put(segment, BASE + number * step, timestamp=NOW + number, interval=interval)
    return segment


def put(segment: Segment, offset: int, *, timestamp: int = NOW, interval: int = 100) -> None:
    data = batch(b"a", b"b", b"c", base_offset=offset, leader_epoch=0, timestamps=timestamp)
    segment.append(data, offset, offset + 2, timestamp, interval)


@pytest.mark.parametrize("interval", [0, 100, 1 << 30])
@pytest.mark.parametrize("step", [3, 5])
def test_every_offset_is_found_in_the_batch_that_ends_at_it_or_after(
    disk: SimulatedDisk, interval: int, step: int
) -> None:
    segment = grown(disk, interval=interval, step=step)
    headers = [header for _, header in segment.headers()]
    for offset in range(BASE - 2, BASE + 20 * step + 2):
        expected = next((header.base_offset for header in headers if header.last_offset >= offset), None)
        found = segment.find(offset)
        assert (found and found.base_offset) == expected
    check_indexes(segment)


def test_a_reopened_segment_has_the_same_state(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    segment.finish()
    again = Segment(disk, DIRECTORY, BASE)
    again.check()
    assert again.size == segment.size
    assert again.next_offset() == BASE + 60
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (NOW + 19, BASE + 59)
    assert again.first_timestamp == NOW
    assert list(again.offsets.entries()) == list(segment.offsets.entries())


@pytest.mark.parametrize("cut", range(21))
def test_a_cut_leaves_nothing_behind_it_in_the_indexes(disk: SimulatedDisk, cut: int) -> None:
    segment = grown(disk, interval=0)
    found = segment.find(BASE + cut * 3)
    if found is not None:
        segment.truncate(found.position, found.base_offset)
    assert segment.next_offset() == BASE + cut * 3
    check_indexes(segment)
    put(segment, BASE + cut * 3, timestamp=NOW - 5, interval=0)
    check_indexes(segment)
    assert segment.first_timestamp == (NOW if cut else NOW - 5)


def test_a_cut_removes_the_aborted_transactions_behind_it(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    segment.aborted.append(Aborted(1, BASE, BASE + 5, BASE + 6))
    segment.aborted.append(Aborted(1, BASE + 6, BASE + 20, BASE + 21))
    found = segment.find(BASE + 18)
    assert found is not None
    segment.truncate(found.position, found.base_offset)
    assert [entry.last_offset for entry in segment.aborted.read()] == [BASE + 5]


def test_a_rebuilt_index_is_in_its_file(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    segment.finish()
    before = disk.listing()
    for path in before:
        if not path.endswith(LOG_SUFFIX):
            disk.remove(path)
    again = Segment(disk, DIRECTORY, BASE)
    again.reindex(100)
    assert disk.listing() == before


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_write_that_fails_leaves_no_bytes(disk: SimulatedDisk, calls: int, error: int) -> None:
    segment = grown(disk)
    size, entries = segment.size, list(segment.offsets.entries())
    disk.fail_after(calls, error)
    try:
        put(segment, BASE + 60)
    except OSError:
        assert segment.size == size
        assert list(segment.offsets.entries()) == entries
        assert disk.size_of(segment.path(LOG_SUFFIX)) == size
        put(segment, BASE + 60)
    check_indexes(segment)


def test_bytes_that_a_failed_write_left_are_cut_when_the_segment_is_finished(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    file = disk.open(segment.path(LOG_SUFFIX))
    disk.pwrite(file, b"rest of a failed write", segment.size)
    disk.close(file)
    segment.finish()
    assert disk.size_of(segment.path(LOG_SUFFIX)) == segment.size


def test_an_index_that_cannot_be_written_refuses_the_batch(disk: SimulatedDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, 0, now_ms=NOW)
    failures = 0
    offset = 0
    while offset < 3 * 1200:
        size, last = segment.size, segment.offsets.last()
        disk.fail_after(1)
        with pytest.raises(OSError, match="error"):
            put(segment, offset, interval=0)
        failures += 1
        assert (segment.size, segment.offsets.last()) == (size, last)
        disk.fail_after(1 << 40)
        put(segment, offset, interval=0)
        offset += 3
    segment.finish()
    check_indexes(segment)
    assert len(segment.offsets) > 1024


def test_a_segment_that_cannot_be_created_does_not_exist(disk: SimulatedDisk) -> None:
    for suffix in SUFFIXES[1:]:
        disk.close(disk.create(f"{DIRECTORY}/{BASE:020d}{suffix}"))
    for calls in range(1, 5):
        disk.fail_after(calls)
        with pytest.raises(OSError, match="error"):
            Segment.create(disk, DIRECTORY, BASE, now_ms=NOW)
        assert not disk.exists(f"{DIRECTORY}/{BASE:020d}{LOG_SUFFIX}")
        for suffix in SUFFIXES[1:]:
            disk.close(disk.create(f"{DIRECTORY}/{BASE:020d}{suffix}"))


@pytest.mark.parametrize("suffix", [DELETED, SWAP])
def test_power_loss_while_files_are_renamed_leaves_a_segment_whole_or_none(suffix: str) -> None:
    for calls in range(1, 6):
        disk = SimulatedDisk(calls)
        disk.make_dir(DIRECTORY)
        segment = grown(disk)
        segment.aborted.append(Aborted(1, BASE, BASE + 5, BASE + 6))
        segment.finish()
        if suffix == SWAP:
            segment.rename(SWAP)
        disk.crash_after(calls)
        with contextlib.suppress(PowerLoss):
            segment.rename(DELETED if suffix == DELETED else "")
        found = disk.crash(Survival.ALL)
        names = found.names(DIRECTORY)
        if f"{BASE:020d}{LOG_SUFFIX}" in names:
            assert f"{BASE:020d}{ABORTED_SUFFIX}" in names, "a log without its aborted transactions"


def test_an_invalid_batch_is_reported_with_its_position(disk: SimulatedDisk) -> None:
    segment = grown(disk, 4)
    third = [position for position, _ in segment.headers()][2]
    disk.pwrite(segment.file.number, b"\xff" * 12, third + 8)
    for walk in (segment.headers, segment.batches):
        with pytest.raises(CorruptLog) as raised:
            list(walk())
        assert raised.value.position == third
    with pytest.raises(CorruptLog):
        segment.find(BASE + 8)


def test_a_flipped_bit_is_found_by_the_checksum(disk: SimulatedDisk) -> None:
    segment = grown(disk, 3)
    disk.pwrite(segment.file.number, b"\xff", segment.size - 3)
    assert len(list(segment.headers())) == 3
    with pytest.raises(CorruptLog, match="CRC"):
        list(segment.batches())


@pytest.mark.parametrize("cut", [1, 60, 61, 80])
def test_an_incomplete_batch_is_corruption(disk: SimulatedDisk, cut: int) -> None:
    segment = grown(disk, 2)
    first = segment.size // 2
    disk.truncate(segment.file.number, first + cut)
    again = Segment(disk, DIRECTORY, BASE)
    for walk in (again.headers, again.batches):
        with pytest.raises(CorruptLog) as raised:
            list(walk())
        assert raised.value.position == first


def test_large_and_small_batches_are_walked_alike(disk: SimulatedDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, 0, now_ms=NOW)
    sizes = [10, 5000, 70, 70, 1_300_000, 20, 4096, 3970, 2_000_000, 1]
    for offset, size in enumerate(sizes):
        segment.append(batch(bytes(size), base_offset=offset, leader_epoch=0), offset, offset, NOW, 100)
    assert [header.base_offset for _, header in segment.headers()] == list(range(len(sizes)))
    assert [header.base_offset for _, header, _, _ in segment.batches()] == list(range(len(sizes)))
    for offset in range(len(sizes)):
        found = segment.find(offset)
        assert found is not None
        assert found.base_offset == offset


def test_an_index_that_points_beyond_the_log_is_detected(disk: SimulatedDisk) -> None:
    segment = grown(disk, interval=0)
    segment.finish()
    segment.cut(100)
    with pytest.raises(CorruptIndex, match="points"):
        Segment(disk, DIRECTORY, BASE).check()


def test_removing_a_segment_removes_its_files(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    segment.aborted.append(Aborted(1, BASE, BASE + 5, BASE + 6))
    segment.finish()
    segment.rename(DELETED)
    assert all(name.endswith(DELETED) for name in disk.names(DIRECTORY))
    segment.remove()
    assert disk.names(DIRECTORY) == []


def test_a_released_segment_holds_no_file(disk: SimulatedDisk) -> None:
    segment = grown(disk)
    segment.aborted.append(Aborted(1, BASE, BASE + 5, BASE + 6))
    segment.release()
    assert disk.open_files == 0


@pytest.mark.parametrize(
    ("offset", "fits"), [(BASE - 1, False), (BASE, True), (BASE + (1 << 31) - 1, True), (BASE + (1 << 31), False)]
)
def test_a_segment_spans_31_bits_of_offsets(disk: SimulatedDisk, offset: int, fits: bool) -> None:
    assert Segment(disk, DIRECTORY, BASE).fits(offset) is fits


def test_the_batch_that_came_last_is_at_hand(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = grown(disk, 5)
    stored = disk.pread(segment.file.number, segment.size, 0)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "pread", lambda *_: pytest.fail("nothing need be read"))
        for offset in range(BASE + 12, BASE + 15):
            found = segment.find(offset)
            assert found is not None
            assert found.base_offset == BASE + 12
            records = segment.read(found, 1 << 20, segment.size)
            assert records.held == stored[records.position : records.position + records.size]
        assert segment.find(BASE + 15) is None
    before = segment.find(BASE + 11)
    assert before is not None
    both = segment.read(before, 1 << 20, segment.size)
    assert (both.size, both.held) == (2 * before.size, None)


def test_a_truncated_tail_is_not_cached(disk: SimulatedDisk) -> None:
    segment = grown(disk, 5)
    last = segment.find(BASE + 12)
    assert last is not None
    segment.truncate(last.position, BASE + 12)
    assert segment.find(BASE + 12) is None
    put(segment, BASE + 12, timestamp=NOW + 100)
    again = segment.find(BASE + 12)
    assert again == last
    records = segment.read(again, 1 << 20, segment.size)
    assert records.held == disk.pread(segment.file.number, again.size, again.position)
    earlier = segment.find(BASE + 6)
    assert earlier is not None
    segment.truncate(earlier.position, BASE + 6)
    found = segment.find(BASE + 5)
    assert found is not None
    assert segment.read(found, 1 << 20, segment.size).held is None


def test_large_batches_are_not_kept(disk: SimulatedDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, 0, now_ms=NOW)
    segment.append(batch(bytes(5000), base_offset=0, leader_epoch=0), 0, 0, NOW, 100)
    found = segment.find(0)
    assert found is not None
    assert segment.read(found, 1 << 20, segment.size).held is None


class Reserving(SystemDisk):
    """Records reserved space, or has none."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.asked: list[tuple[int, int]] = []
        self.was_given = False

    def reserve(self, file: int, position: int, size: int) -> bool:  # type: ignore[override]
        self.asked.append((position, size))
        self.was_given = self.has_room and super().reserve(file, position, size)
        return self.was_given


@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_a_growing_log_reserves_space_and_releases_it(tmp_path: Path, has_room: bool, in_blocks: bool) -> None:
    disk = Reserving(has_room=has_room)
    segment = Segment.create(disk, str(tmp_path), 0, now_ms=NOW)
    data = batch(bytes(200_000), base_offset=0, leader_epoch=0)
    for number in range(20):
        if in_blocks:
            segment.append_block(data, [(len(data), number, NOW)], 4096)
        else:
            segment.append(data, number, number, NOW, 4096)
        if segment.size <= 1 << 20:
            assert not disk.asked
    assert segment.size == 20 * len(data)
    assert 2 <= len(disk.asked) <= 4
    for position, size in disk.asked:
        assert position % len(data) == 0
        assert 1 << 20 <= size <= (2 << 20) + len(data)
    path = Path(segment.path(LOG_SUFFIX))
    assert path.stat().st_size == segment.size
    if disk.was_given:
        assert path.stat().st_blocks * 512 > segment.size + 500_000
    segment.finish()
    assert path.stat().st_size == segment.size
    # Blocks are of 512 bytes; the file system may keep some more for itself.
    assert path.stat().st_blocks * 512 < segment.size + 100_000
    assert path.read_bytes() == bytes(data) * 20


def test_space_is_reserved_again_after_a_truncation(tmp_path: Path) -> None:
    disk = Reserving()
    segment = Segment.create(disk, str(tmp_path), 0, now_ms=NOW)
    data = batch(bytes(200_000), base_offset=0, leader_epoch=0)
    for number in range(8):
        segment.append(data, number, number, NOW, 4096)
    segment.truncate(7 * len(data), 7)
    disk.asked.clear()
    segment.append(data, 7, 7, NOW, 4096)
    assert [position for position, _ in disk.asked] == [7 * len(data)]
