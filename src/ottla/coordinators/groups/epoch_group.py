"""What groups of the three newer protocols have in common: members that heartbeat, a target, and epochs.

group epoch ≥ target's epoch ≥ each member's epoch
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
"""The target's epoch after its record was deleted."""
FIRST_COMMIT_WITH_EPOCH: Final = 9
"""The version of OffsetCommit from which on members tell their epochs."""

M = TypeVar("M")


class Refresh(NamedTuple):
    """Until when the topics of a group need no other look, unless one of them changes. Not recorded."""

    until_ms: int
    epoch: int
    """The group's epoch then; the look counts only if that was written."""

    @classmethod
    def after(cls, now_ms: int, epoch: int) -> Refresh:
        """Return the deadline of a group whose topics were looked at now."""
        return cls(now_ms + _REFRESH_MS, epoch)


NEVER_REFRESHED: Final = Refresh(0, 0)


class EpochGroup(Generic[M]):
    """What such groups are asked, and answer in the same way."""

    __slots__ = ()

    kind: ClassVar[str]
    id: str
    epoch: int
    target_epoch: int
    target_timestamp: int
    refresh: Refresh
    members: Map[str, M]

    @property
    def protocol_type(self) -> str:
        return self.kind

    @property
    def is_empty(self) -> bool:
        return not self.members

    def must_refresh(self, now_ms: int) -> bool:
        """Whether the topics must be looked at, because they may have changed."""
        return now_ms >= self.refresh.until_ms or self.epoch < self.refresh.epoch

    def may_replace_target(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the target is old enough; an interval of 0 allows it even after the clock was set back."""
        return self.target_timestamp == 0 or interval_ms == 0 or now_ms >= self.target_timestamp + interval_ms

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup("The group is not empty.")

    def parked(self) -> Iterator[Ticket]:
        return iter(())

    def member(self, member_id: str) -> M:
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.id}.")
        return found


class _Reconciling(Protocol):
    """A member that moves towards the target in steps."""

    def is_reconciled_to(self, epoch: int) -> bool: ...


R = TypeVar("R", bound=_Reconciling)


def progress(group: EpochGroup[R]) -> str:
    """The state of a group with members that move towards its target, as it is listed."""
    if group.epoch > group.target_epoch:
        return "Assigning"
    if all(member.is_reconciled_to(group.target_epoch) for member in group.members.values()):
        return "Stable"
    return "Reconciling"


def update_counts(counts: Map[str, int], old: Collection[str], new: Collection[str]) -> Map[str, int]:
    """Return the counts after one member replaced its names by others."""
    if old == new:
        return counts
    changed = counts.mutate()
    for name in old:
        left = changed.get(name, 0) - 1
        if left > 0:
            changed[name] = left
        else:
            changed.pop(name, None)
    for name in new:
        changed[name] = changed.get(name, 0) + 1
    return changed.finish()


def have_common(some: Collection[str], others: Collection[str]) -> bool:
    """Whether two collections that are quick to look up in have a name in common: the shorter one is walked through."""
    shorter, longer = (some, others) if len(some) <= len(others) else (others, some)
    return any(name in longer for name in shorter)
