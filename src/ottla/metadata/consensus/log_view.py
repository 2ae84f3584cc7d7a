"""The metadata log as consensus reads it. Writes are effects (see `effects`).

The view shows all writes of earlier steps, flushed or not.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.protocol.wire.types import Records


class OffsetAndEpoch(NamedTuple):
    """An end offset and the epoch of the record before it. It identifies the end of a log, or a snapshot."""

    offset: int
    epoch: int


BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes. It is not replicated: the first leader appends its voters to the log."""


class LogView(Protocol):
    """The metadata log and its snapshots, read-only."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset after the last record; the end of the latest snapshot if the log is empty."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; that of the latest snapshot if the log is empty; 0 without either."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch of the log up to this one, and its end offset.

        The last epoch, and all higher ones, end at the log's end. If all epochs of the log are higher, return the given
        epoch with the start of the first one, so that the follower truncates to there. If the earliest snapshot ends at
        that offset, return the snapshot's epoch.
        """
        ...

    def read(self, offset: int, max_bytes: int) -> Records:
        """Return batches from an offset on: at least one if there is any; the last one may be cut short."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_bytes(self, snapshot: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot, or None if it does not exist."""
        ...

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> Records: ...


class OffsetValidity(Enum):
    """The leader's answer to a follower's fetch offset."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class ValidatedOffset:
    kind: OffsetValidity
    offset_and_epoch: OffsetAndEpoch


def validate_offset(log: LogView, offset: int, epoch: int) -> ValidatedOffset:
    """Check whether the leader's log continues a log that ends with this offset and epoch."""
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        return ValidatedOffset(OffsetValidity.SNAPSHOT, latest)  # an empty follower catches up faster with a snapshot
    if log.start_offset == 0 and offset == 0:
        return ValidatedOffset(OffsetValidity.VALID, OffsetAndEpoch(0, 0))
    start = log.start_offset
    before_log = earliest is not None and (
        offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch
    )
    if before_log:
        assert latest is not None
        return ValidatedOffset(OffsetValidity.SNAPSHOT, latest)
    end = log.end_offset_for(epoch)
    if end.epoch != epoch or end.offset < offset:
        return ValidatedOffset(OffsetValidity.DIVERGING, end)
    return ValidatedOffset(OffsetValidity.VALID, OffsetAndEpoch(offset, epoch))


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Return the offset to truncate to, given the end of the diverging epoch in the leader's log."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    local = log.end_offset_for(diverging.epoch)
    return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
