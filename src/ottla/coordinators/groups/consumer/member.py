"""A member of a consumer group: identity, subscription, assignment and progress towards the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.classic.group import ClassicProtocol

LEAVING: Final = -1
"""The epoch of a member that leaves."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves temporarily: its partitions are kept for its successor."""
JOINING: Final = 0
"""The epoch of a member that joins, or joins again after it was fenced."""

Owned = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member got it. Never changed in place."""
Target = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, sorted. Never changed in place."""
NOTHING_OWNED: Final[Owned] = {}
NO_TARGET: Final[Target] = {}


class MemberState(IntEnum):
    """The state of a member relative to its target, by the numbers of its record."""

    STABLE = 0
    """The member owns exactly its part of the target of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members still own."""
    UNKNOWN = 127

    @classmethod
    def from_number(cls, number: int) -> MemberState:
        """Return the state that a record names; UNKNOWN if a later version wrote it."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


class ClassicMetadata(NamedTuple):
    """The session timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """A member of a consumer group."""

    id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topics subscribed to by name."""
    regex: str | None = ""
    """The regular expression of further topics."""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """The partitions to revoke, which the member owns until it reports that it has."""
    classic: ClassicMetadata | None = None
    """Set if the member uses the classic protocol."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member owns exactly its part of the target of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch in which the member got a partition that it owns; None if it does not own it."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def owned_partitions(target: Target, epoch: int) -> Owned:
    """Return the partitions of a target as owned since one epoch."""
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
