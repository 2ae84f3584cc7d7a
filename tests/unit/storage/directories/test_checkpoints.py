"""Checkpoint files: Ottla and Kafka read each other's files, and errors name the damaged line."""

from pathlib import Path

import pytest

from ottla.storage.directories.checkpoints import (
    RECOVERY_POINTS,
    MalformedCheckpoint,
    parse_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from ottla.storage.disk import SystemDisk


def test_the_content_equals_kafkas(tmp_path: Path) -> None:
    path = str(tmp_path / RECOVERY_POINTS)
    write_checkpoint(SystemDisk(), path, {("orders", 0): 1234, ("a.b-c", 10): 0})
    assert Path(path).read_bytes() == b"0\n2\norders 0 1234\na.b-c 10 0\n"
    assert read_checkpoint(SystemDisk(), path) == {("orders", 0): 1234, ("a.b-c", 10): 0}
    write_checkpoint(SystemDisk(), path, {})
    assert Path(path).read_bytes() == b"0\n0\n"
    assert [entry.name for entry in tmp_path.iterdir()] == [RECOVERY_POINTS]


def test_a_missing_file_has_no_offsets(tmp_path: Path) -> None:
    assert read_checkpoint(SystemDisk(), str(tmp_path / "none")) == {}


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n0", b"0\r\n0\r\n"])
def test_a_file_that_was_only_begun_holds_nothing(content: bytes) -> None:
    assert parse_checkpoint(content, "file") == {}


@pytest.mark.parametrize("content", [b"0\n1\na 1 2", b"0\r\n1\r\na 1 2\r\n", b"0\n1\na\t1  2\n"])
def test_line_ends_and_blanks_may_differ(content: bytes) -> None:
    assert parse_checkpoint(content, "file") == {("a", 1): 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\n0\n", "file, line 1: version '1' instead of 0"),
        (b"\n", "file, line 1: version '' instead of 0"),
        (b"0\nx\n", "file, line 2: 'x' is not a number of entries"),
        (b"0\n2\na 0 1\n", "file, line 3: the file ends after 1 of 2 entries"),
        (b"0\n1\na 0 1\nb 0 1\n", "file, line 4: the file ends after 2 of 1 entries"),
        (b"0\n1\na 0\n", "file, line 3: 'a 0' is not a topic, a partition and an offset"),
        (b"0\n2\na 0 1\n a 0 1\n", "file, line 4: ' a 0 1' is not a topic, a partition and an offset"),
        (b"0\n1\na 0 1_0\n", "file, line 3: 'a 0 1_0' is not a topic, a partition and an offset"),
        (b"0\n1\na 0 9223372036854775808\n", "file, line 3: 'a 0 9223372036854775808' is not"),
        (b"0\n1\na 0 1\n\n", "file, line 4: '' is not a topic, a partition and an offset"),
        (b"0\n1\n\xff 0 1\n", "file, line 3: not UTF-8"),
    ],
)
def test_damage_is_named_with_its_file_and_line(content: bytes, message: str) -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        parse_checkpoint(content, "file")
    assert str(caught.value).startswith(message)
