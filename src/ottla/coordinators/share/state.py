"""The state of one partition of `__share_group_state`: the start offset and state batches of each share partition."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from ottla.coordinators.share.batches import StateBatch

TOPIC: Final = "__share_group_state"
NO_START: Final = -1
"""The start offset of a share partition until its leader determines it."""
NO_COUNT: Final = -1
NO_EPOCH: Final = -1


class SharePartitionKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which its coordinator is found."""
        topic = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


class ShareState(NamedTuple):
    """The state of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    """The number of finished records after the start offset."""
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    updates: int = 0
    """The number of updates since the last snapshot."""
    highest_leader_epoch: int = NO_EPOCH
    """The highest leader epoch so far; leaders with lower ones are fenced."""
    highest_state_epoch: int = NO_EPOCH
    snapshot_offset: int = -1
    """The offset of the last snapshot. The log before it is not needed for this share partition."""


@dataclass(frozen=True, slots=True)
class ShareStates:
    """The state of the share coordinator on one partition."""

    partitions: Map[SharePartitionKey, ShareState] = field(default_factory=Map)

    def first_needed_offset(self) -> int | None:
        """Return the first offset of the log that is still needed; None if there are no share partitions."""
        return min((state.snapshot_offset for state in self.partitions.values()), default=None)
