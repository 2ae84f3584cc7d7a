"""The operating system's disk, files that close themselves, and complete reads and writes on any disk."""

import errno
import gc
import os
import sys
from pathlib import Path

import pytest

from ottla.storage.disk import Disk, FileRange, LogFile, SystemDisk, _fallocate, read_file, replace_file, write_all
from tests.support.simulated_disk import PowerLoss, SimulatedDisk, Survival


@pytest.fixture(params=["system", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Either disk, with `tmp_path` as a directory on it."""
    if request.param == "system":
        return SystemDisk()
    simulated = SimulatedDisk(seed=1)
    simulated.make_dir(str(tmp_path))
    return simulated


class ShortWrites(SystemDisk):
    """Takes a few bytes a call, and nothing any more once it is full."""

    def __init__(self, step: int, room: int) -> None:
        self.step = step
        self.room = room
        self.sizes: list[int] = []

    def pwrite(self, file: int, data: bytes | bytearray | memoryview, position: int, /) -> int:  # type: ignore[override]
        taken = min(self.step, self.room, len(data))
        self.room -= taken
        self.sizes.append(taken)
        return os.pwrite(file, data[:taken], position) if taken else 0


def opened(number: int) -> tuple[int, int] | None:
    """Which file a descriptor is for, if any: a number that is free again may be taken by any thread at once."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def read_all(disk: Disk, number: int) -> bytes | None:
    """What a descriptor gives to read, if it is one of a file."""
    try:
        return disk.pread(number, 100, 0)
    except OSError:
        return None


def test_a_file_is_created_written_read_truncated_and_removed(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "00.log")
    file = disk.create(path)
    assert disk.pwrite(file, b"hello", 0) == 5
    assert disk.pwrite(file, memoryview(bytearray(b"world")), 8) == 5
    disk.sync(file)
    assert disk.pread(file, 100, 0) == b"hello\0\0\0world"
    assert disk.pread(file, 5, 20) == b""
    disk.truncate(file, 4)
    assert disk.size(file) == disk.size_of(path) == 4
    disk.truncate(file, 6)
    assert disk.pread(file, 100, 0) == b"hell\0\0"
    disk.close(file)
    disk.remove(path)
    assert not disk.exists(path)


def test_reserved_space_does_not_change_the_file_size(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "00.log"))
    disk.pwrite(file, b"hello", 0)
    if sys.platform == "linux":
        assert disk.reserve(file, 5, 1 << 20)
    assert disk.size(file) == 5
    assert disk.pread(file, 100, 0) == b"hello"
    assert disk.pwrite(file, b" there", 5) == 6
    assert disk.pread(file, 100, 0) == b"hello there"
    disk.close(file)


def test_room_that_cannot_be_set_aside_is_no_error(tmp_path: Path) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    assert not SystemDisk.reserve(number, 0, 1 << 20)
    os.close(number)


def test_a_python_without_ctypes_sets_no_room_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    allocation = _fallocate.__wrapped__
    assert allocation() is None
    monkeypatch.setattr("ottla.storage.disk._fallocate", allocation)
    file = SystemDisk.create(str(tmp_path / "00.log"))
    assert not SystemDisk.reserve(file, 0, 1 << 20)
    os.close(file)


def test_open_wants_a_file_that_exists_and_keeps_it(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "00.log")
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    disk.close(disk.create(path))
    file = disk.open(path)
    disk.pwrite(file, b"kept", 0)
    disk.close(file)
    assert read_file(disk, path) == b"kept"


def test_create_empties_an_existing_file(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "00.log")
    replace_file(disk, path, b"something")
    disk.close(disk.create(path))
    assert read_file(disk, path) == b""


def test_directories_are_created_with_parents_listed_and_removed(disk: Disk, tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    disk.make_dir(folder)
    disk.make_dir(folder)
    disk.close(disk.create(folder + "/x"))
    disk.close(disk.create(folder + "/y"))
    disk.sync_dir(folder)
    assert sorted(disk.names(folder)) == ["x", "y"]
    with pytest.raises(OSError, match="not empty") as caught:
        disk.remove_dir(folder)
    assert caught.value.errno == errno.ENOTEMPTY
    for name in ("x", "y"):
        disk.remove(f"{folder}/{name}")
    disk.remove_dir(folder)
    assert disk.names(str(tmp_path / "a")) == []


def test_rename_replaces_a_file_that_readers_keep(disk: Disk, tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    replace_file(disk, old, b"old")
    replace_file(disk, new, b"new")
    reader = disk.open(old)
    disk.rename(new, old)
    assert disk.pread(reader, 10, 0) == b"old"
    disk.close(reader)
    assert read_file(disk, old) == b"new"
    assert disk.names(str(tmp_path)) == ["old"]


def test_renaming_a_directory_moves_its_files(disk: Disk, tmp_path: Path) -> None:
    old, new = str(tmp_path / "topic-0"), str(tmp_path / "topic-0.deleted")
    disk.make_dir(old)
    replace_file(disk, old + "/x", b"x")
    disk.rename(old, new)
    assert read_file(disk, new + "/x") == b"x"
    assert not disk.exists(old)


def test_a_file_is_not_synced_as_a_directory(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    replace_file(disk, path, b"")
    with pytest.raises(NotADirectoryError):
        disk.sync_dir(path)


def test_modified_is_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    assert SystemDisk().modified_ms(str(path)) == 1_700_000_000_123


def test_files_are_not_inherited_by_child_processes(tmp_path: Path) -> None:
    disk = SystemDisk()
    for file in (disk.create(str(tmp_path / "x")), disk.open(str(tmp_path / "x"))):
        assert not os.get_inheritable(file)
        disk.close(file)


@pytest.mark.skipif(sys.platform != "linux", reason="lists descriptors through /proc")
def test_sync_dir_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    SystemDisk().sync_dir(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        SystemDisk().sync_dir(str(tmp_path / "missing"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize("data", [b"", b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789")[2:]])
def test_write_all_writes_all(disk: Disk, tmp_path: Path, data: bytes | bytearray | memoryview) -> None:
    file = disk.create(str(tmp_path / "x"))
    write_all(disk, file, data, 3)
    assert disk.pread(file, 100, 3) == bytes(data)
    disk.close(file)


@pytest.mark.parametrize("data", [b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789")])
def test_short_writes_are_continued(tmp_path: Path, data: bytes | bytearray | memoryview) -> None:
    disk = ShortWrites(step=4, room=100)
    file = disk.create(str(tmp_path / "x"))
    write_all(disk, file, data, 2)
    assert disk.sizes == [4, 4, 2]
    assert disk.pread(file, 100, 0) == b"\0\0" + bytes(data)
    disk.close(file)


@pytest.mark.parametrize("room", [0, 3, 8])
def test_a_disk_without_space_is_an_error(tmp_path: Path, room: int) -> None:
    disk = ShortWrites(step=4, room=room)
    file = disk.create(str(tmp_path / "x"))
    with pytest.raises(OSError, match=f"wrote {room} of 10 bytes") as caught:
        write_all(disk, file, b"0123456789", 0)
    assert caught.value.errno == errno.ENOSPC
    disk.close(file)


@pytest.mark.parametrize("seed", range(20))
def test_a_full_disk_is_an_error(seed: int) -> None:
    disk = SimulatedDisk(seed)
    file = disk.create("/x")
    disk.fail_after(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space") as caught:
        write_all(disk, file, b"0123456789", 0)
    assert caught.value.errno == errno.ENOSPC
    assert b"0123456789".startswith(disk.pread(file, 100, 0))
    write_all(disk, file, b"0123456789", 0)
    assert disk.pread(file, 100, 0) == b"0123456789"


def test_read_file_closes_the_file(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    replace_file(disk, path, b"")
    assert read_file(disk, path) == b""
    replace_file(disk, path, bytes(range(256)) * 100)
    assert read_file(disk, path) == bytes(range(256)) * 100
    if isinstance(disk, SimulatedDisk):
        assert disk.open_files == 0


def test_replace_file_leaves_only_the_file(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    for content in (b"one", b"", b"three" * 1000):
        replace_file(disk, path, content)
        assert read_file(disk, path) == content
        assert disk.names(str(tmp_path)) == ["x"]


def test_replace_file_works_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for disk in (SystemDisk(), SimulatedDisk(seed=1)):
        replace_file(disk, "x", b"content")
        assert read_file(disk, "x") == b"content"


def test_replace_file_overwrites_what_a_crash_left(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    replace_file(disk, path + ".tmp", b"longer than the new content")
    replace_file(disk, path, b"new")
    assert read_file(disk, path) == b"new"
    assert disk.names(str(tmp_path)) == ["x"]


OLD = b"old" * 400
NEW = b"new!" * 500


def with_old_content(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_dir("/data")
    disk.sync_dir("/")
    replace_file(disk, "/data/x", OLD)
    return disk


def calls_of_replace_file() -> int:
    disk = with_old_content(0)
    before = disk.calls
    replace_file(disk, "/data/x", NEW)
    return disk.calls - before


@pytest.mark.parametrize("cut", range(1, calls_of_replace_file() + 1))
def test_replace_file_cut_anywhere_leaves_all_of_the_old_or_all_of_the_new(cut: int) -> None:
    found = set()
    for seed in range(200):
        disk = with_old_content(seed)
        disk.crash_after(cut)
        with pytest.raises(PowerLoss):
            replace_file(disk, "/data/x", NEW)
        found |= {read_file(disk.imagine_crash(), "/data/x") for _ in range(4)}
        assert read_file(disk.process_crash(), "/data/x") in (OLD, NEW)
    assert found <= {OLD, NEW}
    # Only once it is renamed can the new content be found: before the last call, the sync of the directory.
    assert found == ({OLD, NEW} if cut == calls_of_replace_file() else {OLD})


@pytest.mark.parametrize("survival", [None, *Survival])
def test_replace_file_is_durable_when_it_returns(survival: Survival | None) -> None:
    for seed in range(200):
        disk = with_old_content(seed)
        replace_file(disk, "/data/x", NEW)
        assert disk.crash(survival).listing() == {"/data/x": NEW}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("cut", range(1, calls_of_replace_file() + 1))
def test_replace_file_that_fails_can_be_tried_again(cut: int, error: int) -> None:
    for seed in range(50):
        disk = with_old_content(seed)
        disk.fail_after(cut, error)
        with pytest.raises(OSError, match=r"error|space"):
            replace_file(disk, "/data/x", NEW)
        assert disk.open_files == 0
        assert read_file(disk.imagine_crash(), "/data/x") in (OLD, NEW)
        replace_file(disk, "/data/x", NEW)
        assert disk.crash().listing() == {"/data/x": NEW}


def test_a_log_file_closes_its_descriptor_when_dropped(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "x")
    file = LogFile(disk, path, disk.create(path))
    number = file.number
    was = opened(number)
    assert was is not None
    assert repr(file) == f"LogFile({path!r}, {number})"
    del file
    gc.collect()
    assert opened(number) != was


def test_a_range_keeps_its_file_open_and_readable_after_removal(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    replace_file(disk, path, b"0123456789")
    file = LogFile(disk, path, disk.open(path))
    number = file.number
    answer = FileRange(file, 2, 5)
    assert len(answer) == 5
    assert repr(answer) == f"FileRange({path!r}, position=2, size=5)"
    assert read_all(disk, number) == b"0123456789"
    del file
    disk.remove(path)
    assert disk.pread(answer.file.number, answer.size, answer.position) == b"23456"
    del answer
    gc.collect()
    assert read_all(disk, number) != b"0123456789"


@pytest.mark.skipif(sys.platform != "linux", reason="sendfile into a pipe is Linux's")
def test_a_range_can_be_sent_without_being_read(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "x")
    replace_file(disk, path, b"0123456789")
    answer = FileRange(LogFile(disk, path, disk.open(path)), 2, 5)
    receiver, sender = os.pipe()
    try:
        assert os.sendfile(sender, answer.file.number, answer.position, len(answer)) == 5
        assert os.read(receiver, 100) == b"23456"
    finally:
        os.close(receiver)
        os.close(sender)
