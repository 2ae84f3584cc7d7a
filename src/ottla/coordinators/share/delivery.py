"""How records of a share partition stand that are in flight: one by one, or as a batch as long as all stand alike.

    available → acquired → acknowledged
        ↑          │ ├───→ archived: rejected, or delivered too often
        └──────────┘ released, or the lock's time is over

A change that must be written down first is begun and then settled; until then nothing else can happen to the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

NO_MEMBER: Final = ""


class RecordState(IntEnum):
    """As it is written down."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class _RollbackState(NamedTuple):
    """What a delivery falls back to if a change of it cannot be written."""

    state: RecordState
    member: str
    most: int


class Delivery:
    """How a record, or a whole batch of them, stands."""

    __slots__ = ("_before", "_is_gone", "count", "member", "state", "until_ms")

    def __init__(self, state: RecordState, count: int, member: str = NO_MEMBER, until_ms: int | None = None) -> None:
        self.state = state
        self.count = count
        """How often it was delivered."""
        self.member = member
        self.until_ms = until_ms
        """When the lock of whoever acquired it ends."""
        self._before: _RollbackState | None = None
        self._is_gone = False

    def __repr__(self) -> str:
        return f"Delivery({self.state.name}, {self.count}, {self.member!r})"

    @property
    def is_changing(self) -> bool:
        """Whether a change of it is being written."""
        return self._before is not None

    @property
    def is_free(self) -> bool:
        """Whether somebody can acquire it."""
        return self.state is RecordState.AVAILABLE and self._before is None

    def copy(self) -> Delivery:
        assert self._before is None, "a batch is split before its records change"
        return Delivery(self.state, self.count, self.member, self.until_ms)

    def acquire(self, member: str, until_ms: int) -> None:
        """Give it to a member."""
        assert self.is_free
        self.state = RecordState.ACQUIRED
        self.count += 1
        self.member = member
        self.until_ms = until_ms

    def change(self, state: RecordState, most: int) -> None:
        """Take it from its member, at once. What was delivered so often as it may be is not available again."""
        assert self.state is RecordState.ACQUIRED
        assert self._before is None
        self.state = RecordState.ARCHIVED if state is RecordState.AVAILABLE and self.count >= most else state
        self.member = NO_MEMBER
        self.until_ms = None

    def begin(self, state: RecordState, most: int) -> None:
        """As `change`, once it is written down."""
        before, until_ms = _RollbackState(self.state, self.member, most), self.until_ms
        self.change(state, most)
        self.until_ms = until_ms
        self._before = before

    def settle(self, now_ms: int, *, written: bool) -> None:
        """What was begun is written down, or cannot be."""
        before, self._before = self._before, None
        assert before is not None
        if written or self._is_gone:
            self.until_ms = None
        elif self.until_ms is not None and self.until_ms <= now_ms:  # the lock has ended meanwhile
            self.state = RecordState.ARCHIVED if self.count >= before.most else RecordState.AVAILABLE
            self.until_ms = None
        else:
            self.state, self.member = before.state, before.member

    def archive(self) -> None:
        """The record is not there any more, whatever else becomes of it."""
        self._is_gone = True
        self.state = RecordState.ARCHIVED
        self.member = NO_MEMBER
        self.until_ms = None


class InFlightBatch:
    """Consecutive offsets in flight."""

    __slots__ = ("deliveries_by_offset", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: Delivery) -> None:
        self.first = first
        self.last = last
        self.whole: Delivery | None = whole
        self.deliveries_by_offset: dict[int, Delivery] = {}
        """By offset, once records of the batch stand differently; then `whole` is None."""

    def __repr__(self) -> str:
        return f"Batch({self.first}-{self.last}, {self.whole or self.deliveries_by_offset})"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        """Let each record stand for itself from now on."""
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self.deliveries_by_offset = {offset: whole.copy() for offset in range(self.first, self.last + 1)}

    def split_acquired(self, last: int) -> None:
        """Split a batch of which only records up to an offset are acquired: for the others it is as if never."""
        self.split()
        for offset in range(last + 1, self.last + 1):
            self.deliveries_by_offset[offset] = Delivery(
                RecordState.AVAILABLE, self.deliveries_by_offset[offset].count - 1
            )

    def deliveries(self) -> Iterator[tuple[int, int, Delivery]]:
        """All of them, with the first and last offset that each is about."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
        else:
            for offset, delivery in self.deliveries_by_offset.items():
                yield offset, offset, delivery

    def within(self, first: int, last: int) -> Iterator[tuple[int, Delivery]]:
        """The records of a batch that was split, from an offset to another."""
        for offset in range(max(first, self.first), min(last, self.last) + 1):
            yield offset, self.deliveries_by_offset[offset]
