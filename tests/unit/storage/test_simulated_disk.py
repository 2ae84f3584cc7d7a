"""The simulated disk: like a real one while it runs, and after a crash as bad as a real one can be, but no worse."""

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.disk import Disk, SystemDisk, read_file, write_all
from tests.support.simulated_disk import SECTOR, PowerLoss, SimulatedDisk, Survival

# The same calls on both disks

NAMES = ("a", "b", "c")
FOLDERS = ("", "c/", "c/c/", "missing/", "a/")  # `c` is a directory more often than not; `a` and `b` mostly files
paths = st.builds(str.__add__, st.sampled_from(FOLDERS), st.sampled_from(NAMES))
files = st.integers(0, 3)
data = st.binary(max_size=40) | st.binary(min_size=600, max_size=700)
positions = st.integers(-1, 1500)
calls = st.one_of(
    st.tuples(st.sampled_from(("open", "create")), paths),
    st.tuples(st.just("pwrite"), files, data, positions),
    st.tuples(st.just("pread"), files, positions, positions),
    st.tuples(st.just("truncate"), files, positions),
    st.tuples(st.sampled_from(("size", "close", "sync")), files),
    st.tuples(
        st.sampled_from(("size_of", "modified_ms", "exists", "names", "remove", "make_dir", "remove_dir")), paths
    ),
    st.tuples(st.just("make_dir"), st.sampled_from(("c", "c/c"))),
    st.tuples(st.just("sync_dir"), st.sampled_from((".", "c", "missing"))),
    st.tuples(st.just("rename"), st.sampled_from(FOLDERS), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


class Runner:
    """Makes calls on a disk; files are numbered by this test, as descriptors differ. The file 0 is never open."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.open = [999_999]

    def run(self, name: str, *arguments: object) -> object:
        try:
            return self.call(name, *arguments)
        except OSError as error:
            return type(error), error.errno

    def call(self, name: str, *arguments: object) -> object:
        method: Callable[..., object] = getattr(self.disk, name)
        match arguments:
            case str(folder), str(old), str(new):
                return method(self.root + folder + old, self.root + folder + new)
            case (str(path),):
                return self.call_with_path(name, method, self.root + path)
            case int(file), *rest:
                file = self.open[file % len(self.open)]
                result = method(file, *rest)
                if name == "close":
                    self.open.remove(file)
                return result
        raise AssertionError(name)

    def call_with_path(self, name: str, method: Callable[..., object], path: str) -> object:
        result = method(path)
        if name in ("open", "create"):
            assert isinstance(result, int)
            self.open.append(result)
            return "opened"
        if name == "names":
            assert isinstance(result, list)
            return sorted(result)
        # Times differ, and so do the sizes of directories.
        return None if name == "modified_ms" or (name == "size_of" and self.is_directory(path)) else result

    def is_directory(self, path: str) -> bool:
        try:
            self.disk.names(path)
        except OSError:
            return False
        return True

    def tree(self, path: str = "") -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name in sorted(self.disk.names(self.root + path)):
            child = path + name
            if self.is_directory(self.root + child):
                found |= {child: None} | self.tree(child + "/")
            else:
                found[child] = read_file(self.disk, self.root + child)
        return found


def compare(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, simulated = Runner(SystemDisk(), folder + "/"), Runner(SimulatedDisk(1), "/")
        try:
            for name, *arguments in steps:
                assert isinstance(name, str)
                expected = real.run(name, *arguments)
                assert simulated.run(name, *arguments) == expected, (name, arguments)
            assert simulated.tree() == real.tree()
        finally:
            for file in real.open[1:]:
                os.close(file)


@settings(max_examples=400, deadline=None)
@given(st.lists(calls, max_size=60))
def test_it_answers_and_fails_as_the_real_disk_does(steps: list[tuple[object, ...]]) -> None:
    compare([("make_dir", "c/c"), ("create", "a"), *steps])


CALLS = ("open", "create", "names", "exists", "make_dir", "remove", "remove_dir", "sync_dir")
PATHS = ("", "/", "/c", "/c/", "//c//x", "/./c", "/missing/x")
ABOVE_THE_ROOT = {(name, "/") for name in ("create", "remove", "remove_dir")}
"""The simulated root has nothing above it."""


@pytest.mark.parametrize(("name", "path"), sorted(set(product(CALLS, PATHS)) - ABOVE_THE_ROOT))
def test_odd_paths_are_as_on_the_real_disk(name: str, path: str, tmp_path: Path) -> None:
    outcomes = []
    for disk, root in ((SystemDisk(), str(tmp_path)), (SimulatedDisk(1), "")):
        disk.make_dir(root + "/c")
        disk.close(disk.create(root + "/c/x"))
        outcomes.append(Runner(disk, root if path else "").run(name, path))
    assert outcomes[0] == outcomes[1]


# While it is up


def test_an_unlinked_file_lives_while_it_is_open() -> None:
    disk = SimulatedDisk(1)
    file = disk.create("/x")
    disk.pwrite(file, b"content", 0)
    disk.remove("/x")
    other = disk.create("/x")
    disk.pwrite(file, b"C", 0)
    assert disk.pread(file, 10, 0) == b"Content"
    assert disk.size(other) == 0


def test_a_closed_descriptor_is_bad_and_never_given_again() -> None:
    disk = SimulatedDisk(1)
    file = disk.create("/x")
    disk.close(file)
    assert disk.open("/x") != file
    for call in (disk.close, disk.size, disk.sync):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call(file)


def test_written_data_does_not_change_with_the_writers_buffer() -> None:
    disk = SimulatedDisk(1)
    file = disk.create("/x")
    buffer = bytearray(b"before")
    disk.pwrite(file, memoryview(buffer), 0)
    buffer[:] = b"after!"
    disk.sync(file)
    disk.sync_dir("/")
    assert disk.listing() == disk.crash().listing() == {"/x": b"before"}


def test_a_move_to_another_directory_is_refused() -> None:
    disk = SimulatedDisk(1)
    disk.make_dir("/a")
    disk.close(disk.create("/x"))
    with pytest.raises(AssertionError, match="not simulated"):
        disk.rename("/x", "/a/x")


def test_times_are_the_clocks_and_may_be_lost() -> None:
    now_ms = 1000
    disk = SimulatedDisk(1, now_ms=lambda: now_ms)
    file = disk.create("/x")
    disk.sync(file)
    disk.sync_dir("/")
    now_ms = 2000
    disk.pwrite(file, b"x", 0)
    assert disk.modified_ms("/x") == 2000
    assert {disk.imagine_crash().modified_ms("/x") for _ in range(50)} == {1000, 2000}


def test_syncs_are_counted_and_follow_a_rename() -> None:
    disk = SimulatedDisk(1)
    file = disk.create("/x")
    assert disk.synced("/x") == disk.synced("/") == 0
    disk.sync(file)
    disk.sync(file)
    disk.sync_dir("/")
    disk.rename("/x", "/y")
    assert (disk.synced("/y"), disk.synced("/")) == (2, 1)
    with pytest.raises(FileNotFoundError):
        disk.synced("/x")


def test_the_dump_shows_what_is_not_durable() -> None:
    disk = SimulatedDisk(1)
    disk.make_dir("/d")
    file = disk.create("/d/x")
    disk.pwrite(file, b"durable", 0)
    disk.sync(file)
    disk.pwrite(file, b" or not", 7)
    assert disk.dump() == "/d/ 1 changes not synced\n/d/x 14 bytes, 7 durable, 1 changes not synced"
    assert disk.listing() == {"/d/x": b"durable or not"}


# After a crash


def with_file(seed: int, durable: bytes = b"") -> tuple[SimulatedDisk, int]:
    """A disk with a file of that content, all of it durable."""
    disk = SimulatedDisk(seed)
    file = disk.create("/x")
    disk.pwrite(file, durable, 0)
    disk.sync(file)
    disk.sync_dir("/")
    return disk, file


def test_one_seed_gives_one_crash() -> None:
    def crashed(seed: int) -> dict[str, bytes]:
        disk, file = with_file(seed)
        for i in range(20):
            disk.pwrite(file, b"%d" % i * 300, disk.size(file))
        return disk.crash().listing()

    assert len({crashed(seed)["/x"] for seed in range(50)}) > 20
    assert all(crashed(seed) == crashed(seed) for seed in range(50))


def test_descriptors_are_bad_after_a_crash_on_the_old_disk_and_on_the_new() -> None:
    for crash in (SimulatedDisk.crash, SimulatedDisk.process_crash):
        old, file = with_file(1, b"content")
        new = crash(old)
        for disk in (old, new):
            with pytest.raises(OSError, match="Bad file descriptor"):
                disk.pread(file, 1, 0)
            with pytest.raises(OSError, match="Bad file descriptor"):
                disk.pwrite(file, b"x", 0)
        assert new.open("/x") != file
        old.close(file)  # by an object that a test drops late
        with pytest.raises(PowerLoss):
            old.create("/y")
        assert new.listing() == {"/x": b"content"}


def test_a_killed_process_loses_nothing_but_power_may_still_go() -> None:
    disk, file = with_file(1, b"durable")
    disk.pwrite(file, b"written", 7)
    disk.create("/y")
    disk = disk.process_crash()
    assert disk.listing() == {"/x": b"durablewritten", "/y": b""}
    assert disk.crash(Survival.NONE).listing()["/x"].rstrip(b"\0") == b"durable"


def test_an_imagined_crash_leaves_the_disk_as_it_is() -> None:
    disk, file = with_file(1, b"durable")
    disk.pwrite(file, b"written", 7)
    imagined = disk.imagine_crash(Survival.NONE)
    other = imagined.open("/x")
    imagined.truncate(other, 0)
    imagined.sync(other)
    disk.sync(file)
    assert disk.crash().listing() == {"/x": b"durablewritten"}


@pytest.mark.parametrize("seed", range(150))
def test_synced_and_untouched_data_never_changes(seed: int) -> None:
    random = Random(seed)
    disk, file = with_file(seed)
    durable, untouched, smallest = b"", set[int](), 0
    for _ in range(200):
        size = disk.size(file)
        kind = random.choices(("append", "overwrite", "truncate", "sync", "look"), (50, 10, 5, 10, 5))[0]
        if kind in ("append", "overwrite"):
            position = size if kind == "append" else random.randint(0, size + 600)
            written = random.randbytes(random.choice((1, 100, 300, 2000)))
            write_all(disk, file, written, position)
            untouched.difference_update(range(position, position + len(written)))
        elif kind == "truncate":
            cut = random.randint(0, size + 100)
            disk.truncate(file, cut)
            untouched.difference_update(range(cut, size))
            smallest = min(smallest, cut)
        elif kind == "sync":
            disk.sync(file)
            durable = disk.listing()["/x"]
            untouched, smallest = set(range(len(durable))), len(durable)
        else:
            found = disk.imagine_crash().listing()["/x"]
            assert len(found) >= smallest
            assert all(found[i] == durable[i] for i in untouched)
    assert disk.imagine_crash(Survival.ALL).listing() == disk.listing()


def test_every_kind_of_survival_is_met() -> None:
    """Three writes, the last of many sectors: the old content, holes, cuts, torn sectors and all of it are found."""
    old, new = b"o" * 700, b"n" * 5000
    met: Counter[str] = Counter()
    for seed in range(400):
        disk, file = with_file(seed, old)
        disk.pwrite(file, new, 700)
        found = disk.crash().listing()["/x"]
        assert found.startswith(old)
        rest = found[700:]
        assert len(rest) <= len(new)
        sectors = [rest[:324], *(rest[i : i + SECTOR] for i in range(324, len(rest), SECTOR))]
        whole = [not sector.strip(b"n") for sector in sectors if sector]
        met["nothing"] += not rest
        met["everything"] += rest == new
        met["only a hole"] += bool(rest) and not rest.strip(b"\0")
        met["a prefix"] += len(rest) < len(new) and all(whole) and len(rest) > 0
        met["a later sector without an earlier"] += False in whole and True in whole[whole.index(False) :]
        met["a torn sector"] += any(b"n" in sector and sector.strip(b"n") for sector in sectors)
        met["garbage"] += bool(rest.strip(b"n\0").replace(b"n", b"").replace(b"\0", b""))
    assert min(met.values()) > 5, met


def test_a_sector_is_found_in_any_version_it_has_had() -> None:
    found = Counter[bytes]()
    for seed in range(400):
        disk, file = with_file(seed, b"0")
        for version in (b"1", b"2", b"3"):
            disk.pwrite(file, version, 0)
        found[disk.crash(Survival.SUBSET).listing()["/x"]] += 1
    assert min(found[version] for version in (b"0", b"1", b"2", b"3")) > 5


def test_a_truncation_may_not_have_happened() -> None:
    found = set()
    for seed in range(200):
        disk, file = with_file(seed, b"old" * 10)
        disk.truncate(file, 3)
        found.add(disk.crash().listing()["/x"])
    assert found == {b"old" * 10, b"old"}


def test_writes_after_a_truncation_may_survive_without_it() -> None:
    found = set()
    for seed in range(400):
        disk, file = with_file(seed, b"old" * 10)
        disk.truncate(file, 3)
        disk.pwrite(file, b"new", 3)
        found.add(disk.crash(Survival.SUBSET).listing()["/x"])
    assert {b"old" * 10, b"old", b"oldnew", b"old\0\0\0", b"oldnew" + b"old" * 8} <= found


def test_names_survive_in_the_order_of_their_changes() -> None:
    states = [{"/a"}, {"/a", "/b"}, {"/c", "/b"}, {"/c"}, {"/c", "/a"}]
    found = Counter[frozenset[str]]()
    for seed in range(300):
        disk = SimulatedDisk(seed)
        disk.close(disk.create("/a"))
        disk.sync_dir("/")
        disk.close(disk.create("/b"))
        disk.rename("/a", "/c")
        disk.remove("/b")
        disk.close(disk.create("/a"))
        found[frozenset(disk.crash().listing())] += 1
    assert set(found) == {frozenset(state) for state in states}


def test_a_removed_file_comes_back_with_its_content() -> None:
    found = set()
    for seed in range(50):
        disk, file = with_file(seed, b"content")
        disk.close(file)
        disk.remove("/x")
        found.add(tuple(disk.crash().listing().items()))
    assert found == {(), (("/x", b"content"),)}


def test_a_synced_file_is_lost_without_its_directory() -> None:
    found = set()
    for seed in range(100):
        disk = SimulatedDisk(seed)
        disk.make_dir("/a/b")
        file = disk.create("/a/b/x")
        disk.pwrite(file, b"content", 0)
        disk.sync(file)
        disk.sync_dir("/a/b")
        disk.sync_dir("/")
        found.add((tuple(disk.imagine_crash().listing().items()), disk.imagine_crash().exists("/a")))
        disk.sync_dir("/a")
        assert disk.crash().listing() == {"/a/b/x": b"content"}
    assert found == {((), True), ((("/a/b/x", b"content"),), True)}


def test_recovered_records_are_durable() -> None:
    for seed in range(50):
        disk, file = with_file(seed, b"content")
        disk.pwrite(file, b"more" * 500, 7)
        disk.close(disk.create("/y"))
        disk = disk.crash()
        assert disk.imagine_crash(Survival.NONE).listing() == disk.listing()


# Faults


def test_a_call_is_cut_by_power_loss_and_nothing_happens_after_it() -> None:
    disk, file = with_file(1)
    calls = disk.calls
    disk.crash_after(2)
    disk.pwrite(file, b"first", 0)
    with pytest.raises(PowerLoss):
        disk.pwrite(file, b"second", 5)
    assert disk.calls == calls + 2
    before = disk.listing()
    assert b"firstsecond".startswith(before["/x"])
    for call in (lambda: disk.pwrite(file, b"x", 0), lambda: disk.sync(file), lambda: disk.remove("/x")):
        with pytest.raises(PowerLoss):
            call()
    disk.close(file)
    assert disk.listing() == before
    assert disk.process_crash().listing() == before


def test_a_write_is_cut_at_any_byte() -> None:
    found = set()
    for seed in range(200):
        disk, file = with_file(seed)
        disk.crash_after(1)
        with pytest.raises(PowerLoss):
            disk.pwrite(file, b"0123456789", 0)
        found.add(len(disk.process_crash().listing()["/x"]))
    assert found == set(range(10))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_call_fails_once(error: int) -> None:
    disk, _ = with_file(1)
    disk.fail_after(2, error)
    disk.close(disk.create("/y"))
    with pytest.raises(OSError, match=os.strerror(error)):
        disk.rename("/x", "/z")
    assert set(disk.listing()) == {"/x", "/y"}
    disk.rename("/x", "/z")
    assert set(disk.listing()) == {"/z", "/y"}


def test_a_full_disk_accepts_a_part_and_then_fails() -> None:
    for seed in range(50):
        disk, file = with_file(seed)
        disk.fail_after(1, errno.ENOSPC)
        try:
            written = disk.pwrite(file, b"0123456789", 0)
        except OSError:
            written = 0
        else:
            with pytest.raises(OSError, match="No space"):
                disk.pwrite(file, b"0123456789"[written:], written)
        assert disk.pread(file, 100, 0) == b"0123456789"[:written]
        assert disk.pwrite(file, b"0123456789", 0) == 10


def test_a_refused_call_is_not_counted() -> None:
    disk, _ = with_file(1)
    calls = disk.calls
    disk.fail_after(1)
    with pytest.raises(FileNotFoundError):
        disk.remove("/missing")
    disk.make_dir("/")
    assert disk.calls == calls


def test_a_failed_sync_loses_data_though_a_later_one_succeeds() -> None:
    lost = 0
    for seed in range(50):
        disk, file = with_file(seed, b"durable")
        disk.pwrite(file, b"written", 7)
        disk.fail_after(1)
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(file)
        assert disk.pread(file, 100, 0) == b"durablewritten"
        disk.pwrite(file, b"later", 14)
        disk.sync(file)
        found = disk.crash().listing()["/x"]
        assert found[:7] == b"durable"
        assert found[14:] == b"later"
        lost += found != b"durablewrittenlater"
    assert lost > 5


def test_power_may_be_lost_while_a_failure_is_handled() -> None:
    disk, file = with_file(1)
    disk.fail_after(1)
    disk.crash_after(2)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(file)
    with pytest.raises(PowerLoss):
        disk.truncate(file, 0)
