"""The directories of a node: made, formatted where they may be, locked, and looked at before they are used."""

from __future__ import annotations

from ottla.config.node_settings import NodeSettings
from ottla.node.formatting import format_directories
from ottla.storage.directories.node_files import DirectoryLock, NodeMeta, read_meta
from ottla.storage.directories.random_ids import random_cluster_id
from ottla.storage.disk import Disk


class NodeFailed(Exception):
    """The node cannot start or go on; the message says why and what to do."""


class Directories:
    """A node's directories, which are its own until they are released."""

    def __init__(self, settings: NodeSettings, disk: Disk) -> None:
        for path in settings.directories:
            disk.make_dir(path)
        if settings.is_own_quorum and all(read_meta(disk, path) is None for path in settings.directories):
            format_directories(settings, random_cluster_id(), standalone=settings.is_controller)
        self._locks: list[DirectoryLock] = []
        self.metas: dict[str, NodeMeta] = {}
        for path in settings.directories:
            self._locks.append(DirectoryLock(path))
            meta = read_meta(disk, path)
            if meta is None:
                raise NodeFailed(f"{path} is not formatted: run `ottla format -t CLUSTER_ID -c FILE` first")
            if meta.node_id != settings.node_id:
                raise NodeFailed(f"{path} belongs to node {meta.node_id}, and this is node {settings.node_id}")
            self.metas[path] = meta
        if len({meta.cluster_id for meta in self.metas.values()}) > 1:
            raise NodeFailed(f"the directories belong to different clusters: {self.metas}")

    def release(self) -> None:
        """Let others have them."""
        for lock in self._locks:
            lock.release()
