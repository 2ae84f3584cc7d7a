"""What consensus may ask of the metadata log. It never writes: writes are effects (see `effects`).

The view must show every write of the steps before, flushed or not.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.protocol.wire.types import Records


class OffsetAndEpoch(NamedTuple):
    """An end offset and the epoch of the record before it: it names a log's end, or a snapshot."""

    offset: int
    epoch: int


BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""Written by formatting, on each node by itself; never replicated: the first leader copies its voters to the log."""


class LogView(Protocol):
    """The metadata log and its snapshots, as far as consensus needs to see them."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """One behind the last record written; the latest snapshot's end when the log is empty."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the latest snapshot when the log is empty; 0 when there is nothing."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch up to this one that the log knows, and where it ends.

        The last epoch ends where the log does; so do all above it. When the log knows none so low, it is the epoch that
        was asked for, and it ends where the first known one starts, so that the follower goes back to there; but when
        the earliest snapshot ends right there, it is the snapshot's epoch.
        """
        ...

    def read(self, offset: int, max_bytes: int) -> Records:
        """Batches from this offset on: one at least if there is any, the last one possibly cut short."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_bytes(self, snapshot: OffsetAndEpoch) -> int | None:
        """The size of a snapshot; None when there is no such."""
        ...

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> Records: ...


class Kind(Enum):
    """What a leader tells a follower of the point where it wants to go on."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Validity:
    kind: Kind
    at: OffsetAndEpoch


def validate(log: LogView, offset: int, epoch: int) -> Validity:
    """Whether the leader's log continues a log that ends with this offset and epoch."""
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        return Validity(Kind.SNAPSHOT, latest)  # whoever has nothing is served faster by the snapshot
    if log.start_offset == 0 and offset == 0:
        return Validity(Kind.VALID, OffsetAndEpoch(0, 0))
    start = log.start_offset
    before_log = earliest is not None and (
        offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch
    )
    if before_log:
        assert latest is not None
        return Validity(Kind.SNAPSHOT, latest)
    end = log.end_offset_for(epoch)
    if end.epoch != epoch or end.offset < offset:
        return Validity(Kind.DIVERGING, end)
    return Validity(Kind.VALID, OffsetAndEpoch(offset, epoch))


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Where a follower must cut its log when the leader's log of that epoch ends there."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    local = log.end_offset_for(diverging.epoch)
    return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
