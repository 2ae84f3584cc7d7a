"""The small files with which a node marks its log directories, and the names of partition directories, as in Kafka.

    <log directory>/.lock                   held by the process that uses the directory
                    meta.properties         the cluster and node that own the directory
                    .kafka_cleanshutdown    exists if the last shutdown was clean
                    orders-0/               a partition
                        partition.metadata  its topic id

Ids are 16 bytes; in files they are 22 characters of URL-safe base64.
"""

import base64
import binascii
import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from ottla.config.settings.properties import InvalidProperties, parse_properties, show_properties
from ottla.storage.disk import Disk, read_file, replace_file

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

UNKNOWN_EPOCH: Final = -1
_MAX_NAME_LENGTH: Final = 255
_ZERO_ID: Final = bytes(16)
_integer = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_id_text = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?").fullmatch


class MalformedFile(Exception):
    """One of a node's files is invalid."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """The content of `meta.properties`: the cluster and node that own a directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None
    """None in a directory that was formatted before Kafka 3.7."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Unknown properties of a newer version, kept as they are."""


def read_meta(disk: Disk, directory: str) -> NodeMeta | None:
    """Return the owner of a directory; None if it is not formatted. Raise MalformedFile."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        properties = parse_properties(read_file(disk, path))
    except FileNotFoundError:
        return None
    except InvalidProperties as error:
        raise MalformedFile(path, str(error)) from None
    values = {name: given.value for name, given in properties.items()}
    if (version := values.pop("version", "0")) != "1":
        raise MalformedFile(path, f"version {version} instead of 1; version 0 was written by a broker with ZooKeeper")
    if missing := [name for name in ("cluster.id", "node.id") if name not in values]:
        raise MalformedFile(path, f"{missing[0]} is missing")
    cluster_id, node_id = values.pop("cluster.id"), values.pop("node.id")
    if not _integer(node_id) or not -1 << 31 <= int(node_id) < 1 << 31:
        raise MalformedFile(path, f"node.id {node_id!r} is not a number")
    directory_id = values.pop("directory.id", None)
    return NodeMeta(cluster_id, int(node_id), None if directory_id is None else parse_id(directory_id, path), values)


def write_meta(disk: Disk, directory: str, meta: NodeMeta) -> None:
    values = {"version": "1", "cluster.id": meta.cluster_id, "node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        values["directory.id"] = show_id(meta.directory_id)
    replace_file(disk, f"{directory}/{META_PROPERTIES}", show_properties({**meta.others, **values}).encode())


def read_topic_id(disk: Disk, partition_directory: str) -> bytes | None:
    """Return the topic id; None if there is no file. Raise MalformedFile."""
    path = f"{partition_directory}/{PARTITION_METADATA}"
    try:
        content = read_file(disk, path).decode(errors="replace")
    except FileNotFoundError:
        return None
    lines = [re.split(r":[ \t\n\x0b\f\r]+", line) for line in re.split(r"\r\n|\n|\r", content)[:2]]
    if len(lines) < 2 or any(len(parts) != 2 for parts in lines):
        raise MalformedFile(path, f"expected a version and a topic_id, found {content[:200]!r}")
    (_, version), (_, topic_id) = lines
    # Newer versions are read too, to allow downgrades.
    if not _integer(version) or int(version) < 0:
        raise MalformedFile(path, f"unknown version {version!r}")
    if (parsed := parse_id(topic_id, path)) == _ZERO_ID:
        raise MalformedFile(path, "the topic id is zero")
    return parsed


def write_topic_id(disk: Disk, partition_directory: str, topic_id: bytes) -> None:
    content = f"version: 0\ntopic_id: {show_id(topic_id)}"
    replace_file(disk, f"{partition_directory}/{PARTITION_METADATA}", content.encode())


def read_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """Return the broker epoch of the last clean shutdown, or UNKNOWN_EPOCH; None if the shutdown was not clean."""
    try:
        content = read_file(disk, f"{directory}/{CLEAN_SHUTDOWN}")
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):  # before Kafka 3.7 the file was empty
        return UNKNOWN_EPOCH
    return epoch if type(epoch) is int else UNKNOWN_EPOCH


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Mark a clean shutdown. A node writes this last."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(disk, f"{directory}/{CLEAN_SHUTDOWN}", content.encode())


def remove_clean_shutdown(disk: Disk, directory: str) -> None:
    """Remove the mark durably, before anything else is written."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)


class DirectoryInUse(Exception):
    """Another process (Ottla or Apache Kafka), or another node in this process, uses the log directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} is in use: another process or node holds its {LOCK} file")
        self.directory = directory


class DirectoryLock:
    """Locks a log directory against other processes, including Apache Kafka, until it is released or the process ends.

    It is a POSIX lock, as Java uses it. Such a lock belongs to the process and ends when the process closes any
    descriptor of the file: nothing else may open the file, and a second lock in the same process must be rejected here.
    The file is not removed on release: that could let two processes in.
    """

    _held: Final[set[str]] = set()

    def __init__(self, directory: str) -> None:
        """Lock an existing directory. Raise DirectoryInUse."""
        self._key = os.path.realpath(directory)
        if self._key in self._held:
            raise DirectoryInUse(directory)
        self._file = _open_locked(directory)
        self._held.add(self._key)

    def release(self) -> None:
        if self._key in self._held:
            self._held.remove(self._key)
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _open_locked(directory: str) -> int:
    path = f"{directory}/{LOCK}"
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:  # Kafka removes the file when it stops; a lock on a removed file is void
                return file
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise DirectoryInUse(directory) from None
        os.close(file)


class Role(StrEnum):
    """The role of a partition directory. The value is the suffix of its name."""

    CURRENT = ""
    DELETED = "-delete"
    """The files are to be removed."""
    FUTURE = "-future"
    """The directory replaces the current one on another disk when it has caught up."""
    STRAY = "-stray"
    """The partition is no longer assigned to this node."""


class NotAPartition(Exception):
    """The name of a directory is not that of a partition."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is neither <topic>-<partition> nor <topic>-<partition>.<id>-delete, -future or -stray"
        )


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_directory_name(topic: str, partition: int, role: Role, unique: str) -> str:
    """Return the name of a partition directory in another role. `unique` is the 32 hexadecimal digits of a UUID.

    The topic is cut off if the name would be too long for a file system, except for a future directory, whose name must
    contain the whole topic.
    """
    assert role is not Role.CURRENT, "only directories in another role are marked"
    end = f"-{partition}.{unique}{role}"
    return (topic if role is Role.FUTURE else topic[: _MAX_NAME_LENGTH - len(end)]) + end


def parse_directory_name(name: str) -> tuple[str, int, Role]:
    """Return topic, partition and role. The topic may be cut off. Raise NotAPartition."""
    role = next((role for role in Role if role and name.endswith(role)), Role.CURRENT)
    rest = name
    if role is not Role.CURRENT:
        if not re.fullmatch(rf"\S+-\S+\.\S+{role}", name, re.ASCII):
            raise NotAPartition(name)
        rest = name[: name.rindex(".")]
    topic, _, partition = rest.rpartition("-")
    if not topic or not _integer(partition) or not -1 << 31 <= int(partition) < 1 << 31:
        raise NotAPartition(name)
    return topic, int(partition), role


def show_id(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_id(text: str, path: str) -> bytes:
    if not _id_text(text):
        raise MalformedFile(path, f"{text!r} is not an id of 22 characters")
    try:
        return base64.urlsafe_b64decode(text[:22] + "==")
    except binascii.Error:
        raise MalformedFile(path, f"{text!r} is not base64") from None
