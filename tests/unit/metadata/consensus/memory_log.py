"""A metadata log in memory that loses unsynced writes in a crash."""

import pickle
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ottla.metadata.consensus import OffsetAndEpoch
from ottla.metadata.consensus.control_records import control_records
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.codec import decode


class Entry(NamedTuple):
    """One batch."""

    base: int
    end: int
    epoch: int
    data: bytes
    control: bool


Change = Callable[[list[Entry]], list[Entry]]


class MemoryLog:
    """The `LogView` of a node, and the writes of its driver."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.unsynced: list[Change] = []
        self.start_offset = 0
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.partial = b""

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end if self.entries else self.start_offset

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        latest = self.latest_snapshot
        return latest.epoch if latest is not None else 0

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        for entry in reversed(self.entries):
            if entry.epoch <= epoch:
                return OffsetAndEpoch(entry.end, entry.epoch)
        first = self.earliest_snapshot
        if first is not None and first.offset == self.start_offset:
            return first
        return OffsetAndEpoch(self.start_offset, epoch)

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for entry in reversed(self.entries):
            if entry.base < offset:
                break
            found.append(entry.data)
        found.reverse()
        for place, data in enumerate(found):
            size += len(data)
            if size > max_bytes and place:
                return b"".join(found[:place]) + found[place][: len(data) // 2]  # fetches may end inside a batch
        return b"".join(found)

    def snapshot_bytes(self, snapshot: OffsetAndEpoch) -> int | None:
        return len(self.snapshots[snapshot]) if snapshot in self.snapshots else None

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return self.snapshots[snapshot][position : position + max_bytes]

    # -- the driver's side --

    def append(self, base: int, data: bytes) -> None:
        assert base == self.end_offset
        new = [
            Entry(
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                data[pos : pos + header.size_bytes],
                header.is_control,
            )
            for pos, header in read_batches(data)
        ]
        self._change(lambda entries: entries + new)

    def truncate(self, end: int) -> None:
        assert self.start_offset <= end < self.end_offset
        self._change(lambda entries: [entry for entry in entries if entry.end <= end])
        assert self.end_offset == end, "truncated inside a batch"

    def _change(self, change: Change) -> None:
        self.entries = change(self.entries)
        self.unsynced.append(change)

    def sync(self, changes: int) -> None:
        for change in self.unsynced[:changes]:
            self.durable = change(self.durable)
        del self.unsynced[:changes]

    def crash(self, random: Random) -> None:
        """Lose unsynced writes, except a random number of the first ones."""
        self.sync(random.randrange(len(self.unsynced) + 1))
        self.unsynced.clear()
        self.entries = list(self.durable)
        self.partial = b""

    def install(self, snapshot: OffsetAndEpoch, data: bytes) -> None:
        self.snapshots = {snapshot: data}
        self.entries, self.durable, self.unsynced = [], [], []
        self.start_offset = snapshot.offset

    def snapshot(self, at: OffsetAndEpoch, data: bytes, *, trim: bool) -> None:
        self.snapshots[at] = data
        if trim:
            self.sync(len(self.unsynced))
            self.start_offset = at.offset
            self.entries = [entry for entry in self.entries if entry.base >= at.offset]
            self.durable = list(self.entries)
            self.snapshots = {at: data}

    def control(self) -> list[tuple[int, object]]:
        """Return the control records that a restarted node reads: of the latest snapshot, then of the log."""
        latest = self.latest_snapshot
        found: list[tuple[int, object]] = []
        if latest is not None:
            found += [(latest.offset - 1, record) for record in snapshot_control(self.snapshots[latest])]
        for entry in self.entries:
            if entry.control and (latest is None or entry.base >= latest.offset):
                found += control_records(entry.data, 0)
        return found


def snapshot_data(digest: int, control: list[tuple[type, bytes]]) -> bytes:
    return pickle.dumps((digest, control)) + bytes(64)


def snapshot_digest(data: bytes) -> int:
    return int(pickle.loads(data)[0])


def snapshot_control(data: bytes) -> list[object]:
    return [decode(kind, 0, encoded) for kind, encoded in pickle.loads(data)[1]]
