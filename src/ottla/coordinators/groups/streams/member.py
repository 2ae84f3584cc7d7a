"""A member of a streams group: identity, process, tasks and progress towards the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.streams.tasks import NOTHING_OWNED, OwnedTasks

LEAVING: Final = -1
"""The epoch of a member that leaves."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves temporarily. Kafka has no static members in streams groups yet, either."""
JOINING: Final = 0
"""The epoch of a member that joins, or joins again after it was fenced."""
NO_TOPOLOGY: Final = -1


class MemberState(IntEnum):
    """The state of a member relative to its target, by the numbers of its record; consumer groups use others."""

    STABLE = 1
    """The member owns exactly its part of the target of its epoch."""
    UNREVOKED_TASKS = 2
    """The member must revoke tasks before it moves to the next epoch."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that other members, or its own process in another role, still own."""
    UNKNOWN = 127

    @classmethod
    def from_number(cls, number: int) -> MemberState:
        """Return the state that a record names; UNKNOWN if a later version wrote it."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


class Endpoint(NamedTuple):
    """The address at which other members query the state of a member's process."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMember:
    """A member of a streams group: a thread of a process."""

    id: str
    epoch: int = JOINING
    previous_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = NO_TOPOLOGY
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    state: MemberState = MemberState.STABLE
    assigned: OwnedTasks = NOTHING_OWNED
    revoking: OwnedTasks = NOTHING_OWNED
    """The tasks to revoke, which the member owns until it reports that it has."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member owns exactly its part of the target of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, subtopology: str, partition: int) -> int | None:
        """Return the epoch in which the member got an active task that it owns; None if it does not own it."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
