"""Which voters and which kraft.version hold from which offset of the metadata log on.

A control record counts as soon as it is in the log, committed or not (KIP-853), and stops counting when it is truncated
away. So the history is kept by offset up to the log's end, and follows every append and truncation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.metadata.consensus.voters import VoterSet
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, VotersRecord

T = TypeVar("T")
BOOTSTRAP_OFFSET = -1
"""Where the records of the checkpoint 0-0, which formatting wrote, are placed: before the log."""


class _Timeline(Generic[T]):
    """Values by the offset from which they hold."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.values: list[T] = []

    def add(self, offset: int, value: T) -> None:
        assert not self.offsets or offset >= self.offsets[-1], f"{offset} after {self.offsets[-1]}"
        if self.offsets and self.offsets[-1] == offset:
            self.values[-1] = value
            return
        self.offsets.append(offset)
        self.values.append(value)

    def at(self, offset: int) -> T | None:
        place = bisect_right(self.offsets, offset)
        return self.values[place - 1] if place else None

    def keep_before(self, offset: int) -> None:
        place = bisect_left(self.offsets, offset)
        del self.offsets[place:], self.values[place:]

    def forget_before(self, offset: int) -> None:
        """Keep the value that holds at the offset, and what comes after it."""
        place = bisect_right(self.offsets, offset) - 1
        if place > 0:
            del self.offsets[:place], self.values[:place]


class ControlHistory:
    """The voters and the kraft.version at every offset that the log or its latest snapshot covers."""

    def __init__(self, static_voters: VoterSet | None = None) -> None:
        self._static = static_voters if static_voters is not None else VoterSet.of(())
        self._voters: _Timeline[VoterSet] = _Timeline()
        self._versions: _Timeline[int] = _Timeline()

    def add(self, offset: int, record: object) -> None:
        """Take note of a record at an offset; kinds that say nothing of voters are passed over."""
        if isinstance(record, VotersRecord):
            self._voters.add(offset, VoterSet.from_record(record))
        elif isinstance(record, KRaftVersionRecord):
            self._versions.add(offset, record.kraft_version)

    def truncate_to(self, end_offset: int) -> None:
        self._voters.keep_before(end_offset)
        self._versions.keep_before(end_offset)

    def snapshotted(self, end_offset: int) -> None:
        """A snapshot up to here exists: what held before its last record is not asked for any more."""
        self._voters.forget_before(end_offset - 1)
        self._versions.forget_before(end_offset - 1)

    def restart_from_snapshot(self, end_offset: int, records: Iterable[object]) -> None:
        """The log was replaced by a snapshot; its control records hold as of the last offset that it contains."""
        self.truncate_to(BOOTSTRAP_OFFSET)
        for record in records:
            self.add(end_offset - 1, record)

    @property
    def voters(self) -> VoterSet:
        return self._voters.values[-1] if self._voters.values else self._static

    @property
    def voters_offset(self) -> int | None:
        """Where the present voters were written; None while they come from the configuration."""
        return self._voters.offsets[-1] if self._voters.offsets else None

    @property
    def voters_before(self) -> VoterSet:
        """The voters before the last change."""
        return self._voters.values[-2] if len(self._voters.values) > 1 else self._static

    @property
    def kraft_version(self) -> int:
        return self._versions.values[-1] if self._versions.values else 0

    def voters_at(self, offset: int) -> VoterSet | None:
        """For the header of a snapshot: the voters at its last contained offset, if the log knows any."""
        return self._voters.at(offset)

    def kraft_version_at(self, offset: int) -> int:
        return self._versions.at(offset) or 0
