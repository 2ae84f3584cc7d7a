"""The delivery state of records in flight: one for each record, or one for a batch whose records all have the same.

    available → acquired → acknowledged
        ↑          │ ├───→ archived: rejected, or delivered too often
        └──────────┘ released, or the acquisition lock expired

A change that must be written first is begun and then settled. In between, nothing else can change the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

NO_MEMBER: Final = ""


class RecordState(IntEnum):
    """The state of a record, by the numbers of its record."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class _RollbackState(NamedTuple):
    """The state to restore if a change cannot be written."""

    state: RecordState
    member: str
    max_deliveries: int


class Delivery:
    """The delivery state of one record or of a whole batch."""

    __slots__ = ("_before", "_is_gone", "count", "member", "state", "until_ms")

    def __init__(self, state: RecordState, count: int, member: str = NO_MEMBER, until_ms: int | None = None) -> None:
        self.state = state
        self.count = count
        """The number of deliveries."""
        self.member = member
        self.until_ms = until_ms
        """When the acquisition lock ends."""
        self._before: _RollbackState | None = None
        self._is_gone = False

    def __repr__(self) -> str:
        return f"Delivery({self.state.name}, {self.count}, {self.member!r})"

    @property
    def is_changing(self) -> bool:
        """Whether a change is being written."""
        return self._before is not None

    @property
    def is_free(self) -> bool:
        """Whether a member can acquire it."""
        return self.state is RecordState.AVAILABLE and self._before is None

    def copy(self) -> Delivery:
        assert self._before is None, "a batch is split before its records change"
        return Delivery(self.state, self.count, self.member, self.until_ms)

    def acquire(self, member: str, until_ms: int) -> None:
        """Let a member acquire it."""
        assert self.is_free
        self.state = RecordState.ACQUIRED
        self.count += 1
        self.member = member
        self.until_ms = until_ms

    def change(self, state: RecordState, max_deliveries: int) -> None:
        """Take it from its member at once. After `max_deliveries` it is archived instead of available."""
        assert self.state is RecordState.ACQUIRED
        assert self._before is None
        self.state = RecordState.ARCHIVED if state is RecordState.AVAILABLE and self.count >= max_deliveries else state
        self.member = NO_MEMBER
        self.until_ms = None

    def begin(self, state: RecordState, max_deliveries: int) -> None:
        """Begin a `change` that takes effect when it is written."""
        before, until_ms = _RollbackState(self.state, self.member, max_deliveries), self.until_ms
        self.change(state, max_deliveries)
        self.until_ms = until_ms
        self._before = before

    def settle(self, now_ms: int, *, written: bool) -> None:
        """End a begun change, which was written or failed."""
        before, self._before = self._before, None
        assert before is not None
        if written or self._is_gone:
            self.until_ms = None
        elif self.until_ms is not None and self.until_ms <= now_ms:  # the lock expired in the meantime
            self.state = RecordState.ARCHIVED if self.count >= before.max_deliveries else RecordState.AVAILABLE
            self.until_ms = None
        else:
            self.state, self.member = before.state, before.member

    def archive(self) -> None:
        """Archive a record that no longer exists, even if a change of it is being written."""
        self._is_gone = True
        self.state = RecordState.ARCHIVED
        self.member = NO_MEMBER
        self.until_ms = None


class InFlightBatch:
    """A range of offsets in flight."""

    __slots__ = ("deliveries_by_offset", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: Delivery) -> None:
        self.first = first
        self.last = last
        self.whole: Delivery | None = whole
        self.deliveries_by_offset: dict[int, Delivery] = {}
        """By offset, after the batch was split. Then `whole` is None."""

    def __repr__(self) -> str:
        return f"Batch({self.first}-{self.last}, {self.whole or self.deliveries_by_offset})"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        """Give each record its own delivery state."""
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self.deliveries_by_offset = {offset: whole.copy() for offset in range(self.first, self.last + 1)}

    def split_acquired(self, last: int) -> None:
        """Split a batch and undo the acquisition of the records after an offset."""
        self.split()
        for offset in range(last + 1, self.last + 1):
            self.deliveries_by_offset[offset] = Delivery(
                RecordState.AVAILABLE, self.deliveries_by_offset[offset].count - 1
            )

    def deliveries(self) -> Iterator[tuple[int, int, Delivery]]:
        """Yield all delivery states, each with its first and last offset."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
        else:
            for offset, delivery in self.deliveries_by_offset.items():
                yield offset, offset, delivery

    def within(self, first: int, last: int) -> Iterator[tuple[int, Delivery]]:
        """Yield the records of a split batch between two offsets."""
        for offset in range(max(first, self.first), min(last, self.last) + 1):
            yield offset, self.deliveries_by_offset[offset]
