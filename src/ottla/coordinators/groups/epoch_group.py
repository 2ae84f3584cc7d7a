"""The common base of consumer, share and streams groups: members with heartbeats, a target assignment, and epochs.

group epoch ≥ target assignment epoch ≥ epoch of each member
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from immutables import Map

from ottla.protocol.errors import NonEmptyGroup, UnknownMemberId
from ottla.storage.state_machine.decision import Ticket

FIRST_EPOCH: Final = 1
_REFRESH_MS: Final = 2**31 - 1
NO_ASSIGNMENT: Final = -1
"""The epoch of the target assignment after its record was deleted."""
FIRST_COMMIT_WITH_EPOCH: Final = 9
"""The first version of OffsetCommit in which members send their epoch."""

M = TypeVar("M")


class RefreshDeadline(NamedTuple):
    """When a group must look at its topics again, if none of them changes before. Not recorded."""

    deadline_ms: int
    epoch: int
    """The group's epoch at the last look, which counts only if that epoch was written."""

    @classmethod
    def after(cls, now_ms: int, epoch: int) -> RefreshDeadline:
        """Return the deadline of a group that looks at its topics now."""
        return cls(now_ms + _REFRESH_MS, epoch)


REFRESH_DUE: Final = RefreshDeadline(0, 0)


class EpochGroup(Generic[M]):
    """The part of the group interface that is the same for all three kinds."""

    __slots__ = ()

    kind: ClassVar[str]
    id: str
    epoch: int
    target_epoch: int
    target_timestamp: int
    refresh_deadline: RefreshDeadline
    members: Map[str, M]

    @property
    def protocol_type(self) -> str:
        return self.kind

    @property
    def is_empty(self) -> bool:
        return not self.members

    def must_refresh(self, now_ms: int) -> bool:
        """Whether the group must look at its topics again, because they may have changed."""
        return now_ms >= self.refresh_deadline.deadline_ms or self.epoch < self.refresh_deadline.epoch

    def may_replace_target(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the target is old enough; an interval of 0 allows it even after the clock was set back."""
        return self.target_timestamp == 0 or interval_ms == 0 or now_ms >= self.target_timestamp + interval_ms

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup("The group is not empty.")

    def parked_tickets(self) -> Iterator[Ticket]:
        return iter(())

    def member(self, member_id: str) -> M:
        """Return a member; raise UnknownMemberId if the group does not have it."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.id}.")
        return member


class _Reconciling(Protocol):
    """A member that moves towards the target assignment in steps."""

    def is_reconciled_to(self, epoch: int) -> bool: ...


R = TypeVar("R", bound=_Reconciling)


def reconciliation_state(group: EpochGroup[R]) -> str:
    """Return the state name of a group with members."""
    if group.epoch > group.target_epoch:
        return "Assigning"
    if all(member.is_reconciled_to(group.target_epoch) for member in group.members.values()):
        return "Stable"
    return "Reconciling"


def update_counts(counts: Map[str, int], old: Collection[str], new: Collection[str]) -> Map[str, int]:
    """Return the numbers of members by name after one member replaced its names."""
    if old == new:
        return counts
    changed = counts.mutate()
    for name in old:
        count = changed.get(name, 0) - 1
        if count > 0:
            changed[name] = count
        else:
            changed.pop(name, None)
    for name in new:
        changed[name] = changed.get(name, 0) + 1
    return changed.finish()


def intersects(first: Collection[str], second: Collection[str]) -> bool:
    """Whether two sets or mappings share a name; iterates over the shorter one."""
    shorter, longer = (first, second) if len(first) <= len(second) else (second, first)
    return any(name in longer for name in shorter)
