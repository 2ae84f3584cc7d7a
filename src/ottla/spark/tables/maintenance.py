"""What a table needs now and then: few large files instead of many small ones, and an end to old snapshots.

Small files of one partition are written anew as one when there are enough of them. That is a commit like any other, on
the state that it was worked out from, and it changes no row.
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
from ottla.spark.tables.tasks import Rewrite

SMALL: Final = 0.5
"""A file below this share of the target is small."""
_ORPHAN_AGE_S: Final = 86_400.0


class Upkeep(NamedTuple):
    """When something is done, and how much is kept."""

    small_files: int = 16
    """So many small files in a partition are made one."""
    keep_snapshots: int = 20
    snapshot_age_s: float = 3600.0
    """Snapshots beyond those that are kept go when they are older."""
    target_bytes: int = TARGET_BYTES

    def after_batch(self, keeper: TableWriter, number: int) -> None:
        """What a run does after its n-th batch."""
        for store in (keeper.rows, keeper.dead_letters):
            compacted = compact(keeper, store, self)
            if compacted.before or number % self.keep_snapshots == 0:
                store.expire(self.keep_snapshots, self.snapshot_age_s)


class Compacted(NamedTuple):
    """Files before and after."""

    before: int = 0
    after: int = 0


def compact(keeper: TableWriter, store: Store, upkeep: Upkeep) -> Compacted:
    """Make few files of many small ones, where there are enough."""
    state = store.state()
    if state.marks is None:
        return Compacted()
    chosen = groups_of_small(store.files(), upkeep)
    if not chosen:
        return Compacted()
    work = Rewrite(store.reader(), store.layout(), keeper.run, upkeep.target_bytes)
    done = [each for each in keeper.engine.map(work, chosen) if each is not None]
    added = [file for each in done for file in each.files]
    removed = [file for each in done for file in each.removed]
    store.commit(state, state.marks, added, removed)
    return Compacted(len(removed), len(added))


def groups_of_small(files: Sequence[StoredFile], upkeep: Upkeep) -> list[list[StoredFile]]:
    """Which files are written together: small ones of a partition, up to the target's size."""
    small: dict[tuple[object, ...], list[StoredFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < upkeep.target_bytes * SMALL:
            small[file.partition].append(file)
    found = []
    for members in small.values():
        if len(members) < upkeep.small_files:
            continue
        group: list[StoredFile] = []
        size = 0
        for file in sorted(members, key=lambda each: each.path):
            if group and size + file.size_bytes > upkeep.target_bytes:
                found.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size_bytes
        if group:
            found.append(group)
    return [group for group in found if len(group) > 1]


def remove_orphans(store: Store, age_s: float = _ORPHAN_AGE_S) -> int:
    """Delete files of tasks and runs that died before a commit, when they are old enough; how many."""
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
    """Where a location is on this machine, if it is here at all."""
    # PyIceberg takes what follows file:// as it is, without escapes.
    if "://" in location and not location.startswith("file://"):
        return None
    return Path(os.path.normpath(location.removeprefix("file://")))
