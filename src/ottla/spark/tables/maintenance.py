"""Maintenance of tables: compaction of small files, expiry of old snapshots, and removal of orphan files.

A compaction merges the small files of a partition once there are enough of them. It commits like a micro-batch, on the
state that it has read, and changes no rows.
"""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.spark.tables.files import TARGET_BYTES
from ottla.spark.tables.store import Store, StoredFile
from ottla.spark.tables.table_writer import TableWriter
from ottla.spark.tables.tasks import RewriteTask

SMALL: Final = 0.5
"""A file smaller than this share of the target size is small."""
_ORPHAN_AGE_S: Final = 86_400.0


class MaintenancePolicy(NamedTuple):
    """When tables are compacted, and which snapshots are kept."""

    small_files: int = 16
    """A partition is compacted once it has this many small files."""
    keep_snapshots: int = 20
    snapshot_age_s: float = 3600.0
    """Snapshots beyond `keep_snapshots` expire once they are older than this."""
    target_bytes: int = TARGET_BYTES

    def maintain(self, writer: TableWriter, number: int) -> None:
        """Do the maintenance that is due after a run's n-th batch."""
        for store in (writer.rows, writer.dead_letters):
            compacted = compact(writer, store, self)
            if compacted.before or number % self.keep_snapshots == 0:
                store.expire(self.keep_snapshots, self.snapshot_age_s)


class CompactionResult(NamedTuple):
    """The number of compacted files before and after."""

    before: int = 0
    after: int = 0


def compact(writer: TableWriter, store: Store, policy: MaintenancePolicy) -> CompactionResult:
    """Merge the small files of each partition that has enough of them."""
    state = store.state()
    if state.marks is None:
        return CompactionResult()
    groups = group_small_files(store.files(), policy)
    if not groups:
        return CompactionResult()
    work = RewriteTask(store.reader(), store.layout(), writer.run, policy.target_bytes)
    results = [result for result in writer.engine.map(work, groups) if result is not None]
    added = [file for result in results for file in result.files]
    removed = [file for result in results for file in result.removed]
    store.commit(state, state.marks, added, removed)
    return CompactionResult(len(removed), len(added))


def group_small_files(files: Sequence[StoredFile], policy: MaintenancePolicy) -> list[list[StoredFile]]:
    """Return groups of files to merge: small files of one partition, up to the target size."""
    small: dict[tuple[object, ...], list[StoredFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < policy.target_bytes * SMALL:
            small[file.partition].append(file)
    groups = []
    for members in small.values():
        if len(members) < policy.small_files:
            continue
        group: list[StoredFile] = []
        size = 0
        for file in sorted(members, key=lambda member: member.path):
            if group and size + file.size_bytes > policy.target_bytes:
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size_bytes
        if group:
            groups.append(group)
    return [group for group in groups if len(group) > 1]


def remove_orphans(store: Store, age_s: float = _ORPHAN_AGE_S) -> int:
    """Delete old files that tasks wrote and no commit names; return how many."""
    folder = local_path(store.layout().folder)
    if folder is None:
        return 0
    needed = {str(local_path(path)) for path in store.every_file()}
    limit_s = time.time() - age_s
    count = 0
    for path in folder.rglob("*.parquet"):
        is_log = path.relative_to(folder).parts[0] == "_delta_log"
        if not is_log and str(path) not in needed and path.stat().st_mtime < limit_s:
            path.unlink()
            count += 1
    return count


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine, or None if it is elsewhere."""
    # PyIceberg does not unescape the path after file://.
    if "://" in location and not location.startswith("file://"):
        return None
    return Path(os.path.normpath(location.removeprefix("file://")))
