"""What one partition of `__share_group_state` holds: for each share partition where it starts and how records stand."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from ottla.coordinators.share.batches import StateBatch

TOPIC: Final = "__share_group_state"
NO_START: Final = -1
"""The start offset of a share partition whose leader has yet to find it."""
NO_COUNT: Final = -1
NO_EPOCH: Final = -1


class SharePartitionKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """By which its coordinator is found."""
        topic = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


class ShareState(NamedTuple):
    """The state of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    """How many records from the start on are done with."""
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    updates: int = 0
    """Since the last snapshot."""
    highest_leader_epoch: int = NO_EPOCH
    """The highest that was heard of: leaders of earlier ones may not write."""
    highest_state_epoch: int = NO_EPOCH
    snapshot_offset: int = -1
    """The offset of the last snapshot; what lies before it is not needed for this share partition."""


@dataclass(frozen=True, slots=True)
class ShareStates:
    """The state of the share coordinator on one partition."""

    partitions: Map[SharePartitionKey, ShareState] = field(default_factory=Map)

    def first_needed_offset(self) -> int | None:
        """The first offset of the log that is still needed; None if nothing is known."""
        return min((state.snapshot_offset for state in self.partitions.values()), default=None)
