"""The voters and the kraft.version at each offset of the metadata log.

A control record is in force as soon as it is in the log, committed or not, until it is truncated (KIP-853). So the
history covers the log up to its end, and follows every append and truncation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.metadata.consensus.voters import VoterSet
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, VotersRecord

T = TypeVar("T")
BOOTSTRAP_OFFSET = -1
"""The offset of the records of the checkpoint 0-0, which formatting writes: before the log."""


class _Timeline(Generic[T]):
    """Values, each with the offset from which it is in force."""

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

    def value_at(self, offset: int) -> T | None:
        index = bisect_right(self.offsets, offset)
        return self.values[index - 1] if index else None

    def truncate(self, offset: int) -> None:
        index = bisect_left(self.offsets, offset)
        del self.offsets[index:], self.values[index:]

    def forget_before(self, offset: int) -> None:
        """Drop all values that are superseded at the offset."""
        index = bisect_right(self.offsets, offset) - 1
        if index > 0:
            del self.offsets[:index], self.values[:index]


class ControlHistory:
    """The voters and the kraft.version at every offset that the log or its latest snapshot covers."""

    def __init__(self, static_voters: VoterSet | None = None) -> None:
        self._static = static_voters if static_voters is not None else VoterSet.from_voters(())
        self._voters: _Timeline[VoterSet] = _Timeline()
        self._versions: _Timeline[int] = _Timeline()

    def add(self, offset: int, record: object) -> None:
        """Add the record at an offset. Other kinds than voters and kraft.version are ignored."""
        if isinstance(record, VotersRecord):
            self._voters.add(offset, VoterSet.from_record(record))
        elif isinstance(record, KRaftVersionRecord):
            self._versions.add(offset, record.kraft_version)

    def truncate_to(self, end_offset: int) -> None:
        self._voters.truncate(end_offset)
        self._versions.truncate(end_offset)

    def forget_before_snapshot(self, end_offset: int) -> None:
        """Drop what is older than the last record of a snapshot."""
        self._voters.forget_before(end_offset - 1)
        self._versions.forget_before(end_offset - 1)

    def restart_from_snapshot(self, end_offset: int, records: Iterable[object]) -> None:
        """Replace the history by a snapshot's control records, in force from its last offset on."""
        self.truncate_to(BOOTSTRAP_OFFSET)
        for record in records:
            self.add(end_offset - 1, record)

    @property
    def voters(self) -> VoterSet:
        return self._voters.values[-1] if self._voters.values else self._static

    @property
    def voters_offset(self) -> int | None:
        """The offset of the current voters, or None if they come from the configuration."""
        return self._voters.offsets[-1] if self._voters.offsets else None

    @property
    def voters_before(self) -> VoterSet:
        """The voters before the last change."""
        return self._voters.values[-2] if len(self._voters.values) > 1 else self._static

    @property
    def kraft_version(self) -> int:
        return self._versions.values[-1] if self._versions.values else 0

    def voters_at(self, offset: int) -> VoterSet | None:
        """Return the voters at an offset, or None if the log has none. A snapshot starts with them."""
        return self._voters.value_at(offset)

    def kraft_version_at(self, offset: int) -> int:
        return self._versions.value_at(offset) or 0
