"""The small files of a log directory and the names of partition directories."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.storage.directories.node_files import (
    UNKNOWN_EPOCH,
    DirectoryInUse,
    DirectoryLock,
    MalformedFile,
    NodeMeta,
    NotAPartition,
    Role,
    directory_name,
    marked_directory_name,
    parse_directory_name,
    read_clean_shutdown,
    read_meta,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta,
    write_topic_id,
)
from ottla.storage.disk import SystemDisk

ID = bytes(range(16))
UNIQUE = "1f3c23e49c0a411e8d886079bb36fafd"
KAFKAS_META = """#
#Sun Nov 15 21:40:16 UTC 2026
node.id=3
directory.id=AAECAwQFBgcICQoLDA0ODw
version=1
cluster.id=5L6g3nShT-eMCtK--X86sw
"""


def test_kafkas_meta_properties_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(KAFKAS_META)
    assert read_meta(SystemDisk(), str(tmp_path)) == NodeMeta("5L6g3nShT-eMCtK--X86sw", 3, ID)


def test_meta_properties_are_written_and_keep_unknown_properties(tmp_path: Path) -> None:
    assert read_meta(SystemDisk(), str(tmp_path)) is None
    meta = NodeMeta("my cluster é", 7, None, {"from.the future": "1"})
    write_meta(SystemDisk(), str(tmp_path), meta)
    assert read_meta(SystemDisk(), str(tmp_path)) == meta
    assert (tmp_path / "meta.properties").read_bytes() == (
        b"from.the\\ future=1\nversion=1\ncluster.id=my cluster \\u00E9\nnode.id=7\n"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("broker.id=1\n", "version 0 instead of 1"),
        ("version=2\n", "version 2 instead of 1"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=a\n", "node.id is missing"),
        ("version=1\ncluster.id=a\nnode.id=x\n", "node.id 'x' is not a number"),
        ("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=b\n", "'b' is not an id"),
        ("version=\\u1\n", "line 1"),
    ],
)
def test_bad_meta_properties_are_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(MalformedFile) as caught:
        read_meta(SystemDisk(), str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/meta.properties: {problem}")


def test_a_partitions_metadata_is_kafkas(tmp_path: Path) -> None:
    assert read_topic_id(SystemDisk(), str(tmp_path)) is None
    write_topic_id(SystemDisk(), str(tmp_path), ID)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(SystemDisk(), str(tmp_path)) == ID


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "expected a version and a topic_id"),
        (b"version: 0\n", "expected a version and a topic_id"),
        (b"version:0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "expected a version and a topic_id"),
        (b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "unknown version '-1'"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"),
        (b"version: 0\ntopic_id: AAAA", "'AAAA' is not an id"),
        (b"\xff\n\xff", "expected a version and a topic_id"),
    ],
)
def test_bad_partition_metadata_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(MalformedFile, match=f"partition.metadata: {problem}"):
        read_topic_id(SystemDisk(), str(tmp_path))


def test_a_clean_shutdown_leaves_its_mark_until_the_next_start(tmp_path: Path) -> None:
    disk, directory = SystemDisk(), str(tmp_path)
    assert read_clean_shutdown(disk, directory) is None
    write_clean_shutdown(disk, directory, 42)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(disk, directory) == 42
    remove_clean_shutdown(disk, directory)
    remove_clean_shutdown(disk, directory)
    assert read_clean_shutdown(disk, directory) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b'{"version":0}', b'{"brokerEpoch":"x"}', b"\xff"])
def test_a_mark_without_an_epoch_is_a_mark_all_the_same(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert read_clean_shutdown(SystemDisk(), str(tmp_path)) == UNKNOWN_EPOCH


def try_elsewhere(directory: Path) -> str:
    """Lock a directory in another process, which then ends."""
    script = "import sys; from ottla.storage.directories.node_files import DirectoryLock; DirectoryLock(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=False)
    return done.stderr


def test_a_directory_is_used_by_one_process_and_one_node_at_a_time(tmp_path: Path) -> None:
    with DirectoryLock(str(tmp_path)):
        assert f"DirectoryInUse: {tmp_path} is in use" in try_elsewhere(tmp_path)
        with pytest.raises(DirectoryInUse, match=f"{tmp_path}/. is in use"):
            DirectoryLock(f"{tmp_path}/.")
        assert "DirectoryInUse" in try_elsewhere(tmp_path)  # the second attempt did not lose the lock
    assert try_elsewhere(tmp_path) == ""
    lock = DirectoryLock(str(tmp_path))
    lock.release()
    lock.release()
    DirectoryLock(str(tmp_path)).release()


@pytest.mark.parametrize("role", [role for role in Role if role])
def test_directory_names_are_made_and_read(role: Role) -> None:
    assert directory_name("a-b.c", 12) == "a-b.c-12"
    assert parse_directory_name("a-b.c-12") == ("a-b.c", 12, Role.CURRENT)
    name = marked_directory_name("a-b.c", 12, role, UNIQUE)
    assert name == f"a-b.c-12.{UNIQUE}{role}"
    assert parse_directory_name(name) == ("a-b.c", 12, role)


def test_a_long_topic_is_cut_off_except_in_future_directories() -> None:
    assert len(marked_directory_name("x" * 249, 12, Role.DELETED, UNIQUE)) == 255
    assert len(marked_directory_name("x" * 249, 12, Role.STRAY, UNIQUE)) == 255
    assert parse_directory_name(marked_directory_name("x" * 249, 12, Role.FUTURE, UNIQUE)) == (
        "x" * 249,
        12,
        Role.FUTURE,
    )


@pytest.mark.parametrize(
    "name", ["a", "-1", "a-", "a-x", "a-1-delete", "a-1.-delete", "my-future", "a-1.xyz", "a- 1", ""]
)
def test_other_names_are_no_partitions(name: str) -> None:
    with pytest.raises(NotAPartition, match="neither <topic>-<partition>"):
        parse_directory_name(name)
