"""The directories of a node: creates, formats, locks and checks them before they are used."""

from __future__ import annotations

from collections.abc import Callable

from ottla.config.node_settings import NodeSettings
from ottla.node.formatting import format_directories
from ottla.replication.runtime import Runtime
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.node_files import DirectoryLock, NodeMeta, read_meta
from ottla.storage.directories.random_ids import random_cluster_id
from ottla.storage.disk import Disk


class NodeFailed(Exception):
    """The node cannot start or continue; the message says why and what to do."""


class Directories:
    """The directories of a node, locked until `release`."""

    def __init__(self, settings: NodeSettings, disk: Disk) -> None:
        for path in settings.directories:
            disk.make_dir(path)
        if settings.is_own_quorum and all(read_meta(disk, path) is None for path in settings.directories):
            format_directories(settings, random_cluster_id(), standalone=settings.is_controller)
        self.disk = disk
        self._log_dirs = settings.log_dirs
        self._locks: list[DirectoryLock] = []
        self.metas: dict[str, NodeMeta] = {}
        for path in settings.directories:
            self._locks.append(DirectoryLock(path))
            meta = read_meta(disk, path)
            if meta is None:
                raise NodeFailed(f"{path} is not formatted: run `ottla format -t CLUSTER_ID -c FILE` first")
            if meta.node_id != settings.node_id:
                raise NodeFailed(
                    f"{path} belongs to node {meta.node_id}, but this is node {settings.node_id}:"
                    " correct node.id or log.dirs"
                )
            self.metas[path] = meta
        if len({meta.cluster_id for meta in self.metas.values()}) > 1:
            clusters = ", ".join(f"{path} to {meta.cluster_id}" for path, meta in self.metas.items())
            raise NodeFailed(f"the directories belong to different clusters ({clusters}): correct log.dirs")

    @property
    def cluster_id(self) -> str:
        return next(iter(self.metas.values())).cluster_id

    def logs(self, runtime: Runtime, on_failure: Callable[[LogDirectory, OSError], None]) -> Logs:
        """Return the logs of all log directories; they are not loaded yet."""
        return Logs(
            [
                LogDirectory(
                    path,
                    self.metas[path],
                    disk=self.disk,
                    background=runtime.threads,
                    random=runtime.random,
                    on_failure=on_failure,
                )
                for path in self._log_dirs
                if path in self.metas
            ]
        )

    def release(self) -> None:
        """Unlock the directories."""
        for lock in self._locks:
            lock.release()
