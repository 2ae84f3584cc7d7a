"""A member of a streams group: its process, what it runs, and how far it is with giving up and taking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.streams.tasks import NOTHING_OWNED, OwnedTasks

LEAVING: Final = -1
"""The epoch of a member that leaves."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves for a while. There are no static members yet, in Kafka neither."""
JOINING: Final = 0
"""The epoch of a member that comes, or comes again after it was fenced."""
NO_TOPOLOGY: Final = -1


class MemberState(IntEnum):
    """How a member stands to its target, by the numbers of its record, which are not those of consumer groups."""

    STABLE = 1
    """It has what the target of its epoch gives it."""
    UNREVOKED_TASKS = 2
    """It must give up tasks before it gets to the next epoch."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others, or its own process in another role, still have."""
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state that a record names; what a later version may have added is not known."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


class Endpoint(NamedTuple):
    """Where others may query the state of a member's process."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMember:
    """One of a streams group's members: a thread of a process."""

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
    """What it must give up, and owns until it has said so."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all and only what the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, subtopology: str, partition: int) -> int | None:
        """Since which epoch it has an active task, even if it must give it up; None if it does not."""
        for owned in (self.assigned, self.revoking):
            found = owned.active.get(subtopology, {}).get(partition)
            if found is not None:
                return found
        return None
