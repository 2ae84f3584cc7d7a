"""A member of a consumer group: who it is, what it wants, what it owns, and how far it is with giving up and taking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.classic.group import ClassicProtocol

LEAVING: Final = -1
"""The epoch of a member that leaves."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves for a while: its partitions are kept for whoever comes with its name."""
JOINING: Final = 0
"""The epoch of a member that comes, or comes again after it was fenced."""

Owned = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member got it. Never changed in place."""
Target = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, sorted. Never changed in place."""
NOTHING_OWNED: Final[Owned] = {}
NO_TARGET: Final[Target] = {}


class MemberState(IntEnum):
    """How a member stands to its target, by the numbers of its record."""

    STABLE = 0
    """It has what the target of its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it gets to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still have."""
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state that a record names; what a later version may have added is not known."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


class ClassicMetadata(NamedTuple):
    """What is kept of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """One of a consumer group's members."""

    id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topics that it names."""
    regex: str | None = ""
    """The expression whose topics it wants as well."""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """What it must give up, and owns until it has said so."""
    classic: ClassicMetadata | None = None
    """Set if it speaks the classic protocol."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all and only what the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Since which epoch it owns a partition, even if it must give it up; None if it does not."""
        for owned in (self.assigned, self.revoking):
            found = owned.get(topic_id, {}).get(partition)
            if found is not None:
                return found
        return None


def owned_partitions(target: Target, epoch: int) -> Owned:
    """All partitions of a target, as got in one epoch."""
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
