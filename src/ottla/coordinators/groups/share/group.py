"""A share group as a value that never changes: its members, its target, and which of its partitions have a state.

    group epoch ≥ target's epoch ≥ each member's epoch

Unlike in a consumer group several members may read a partition, so that nobody waits for anybody: a member is at the
target with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from immutables import Map

from ottla.coordinators.groups.epoch_group import (
    FIRST_EPOCH,
    REFRESH_DUE,
    EpochGroup,
    RefreshDeadline,
    intersects,
    update_counts,
)
from ottla.coordinators.groups.share.member import NO_TARGET, ShareGroupMember, Target
from ottla.coordinators.groups.share.partitions import SharePartitions
from ottla.coordinators.groups.share.records import group_tombstones
from ottla.coordinators.groups.state import CommittedOffset
from ottla.metadata.image.values import NO_ENTRIES
from ottla.protocol.errors import GroupIdNotFound
from ottla.storage.state_machine.entries import Stored


@dataclass(frozen=True, slots=True)
class ShareGroup(EpochGroup[ShareGroupMember]):
    """A group of the share protocol."""

    kind = "share"

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Of the topics that it reads, as they were when the epoch began."""
    members: Map[str, ShareGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    targets: Map[str, Target] = NO_ENTRIES
    partitions: SharePartitions | None = None
    """None as long as nothing was written down about them."""
    subscriber_counts: Map[str, int] = NO_ENTRIES
    """How many members name a topic; follows from the members."""
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    """Not recorded."""

    # -- what all groups are asked --

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        raise self._no_consumer_group()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._no_consumer_group()

    def check_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriber_counts

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of these topics."""
        return intersects(topics, self.subscriber_counts)

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return None

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members))

    def _no_consumer_group(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.id} is not a consumer group.")

    # -- members --

    def target_of(self, member: ShareGroupMember) -> Target:
        return self.targets.get(member.id, NO_TARGET)

    def is_uniform(self) -> bool:
        """Whether all members read the same topics."""
        return all(count == len(self.members) for count in self.subscriber_counts.values())

    def lacks_assignment(self) -> bool:
        """Whether partitions of topics that members read got their state after the target was made."""
        if not self.members or self.partitions is None:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, numbers in target.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        return any(
            known.name in self.subscriber_counts and assigned.get(topic_id, set()) != set(known.partitions)
            for topic_id, known in self.partitions.initialized.items()
        )

    # -- changes --

    def with_member(self, new: ShareGroupMember) -> ShareGroup:
        """With a member added or changed."""
        old = self.members.get(new.id)
        names = update_counts(self.subscriber_counts, old.topics if old is not None else frozenset(), new.topics)
        return replace(self, members=self.members.set(new.id, new), subscriber_counts=names)

    def without_member(self, member_id: str) -> ShareGroup:
        """Without a member."""
        old = self.members[member_id]
        return replace(
            self,
            members=self.members.delete(member_id),
            subscriber_counts=update_counts(self.subscriber_counts, old.topics, frozenset()),
        )

    def with_target(self, member_id: str, target: Target) -> ShareGroup:
        return replace(self, targets=self.targets.set(member_id, target))

    def without_target(self, member_id: str) -> ShareGroup:
        return replace(self, targets=self.targets.delete(member_id)) if member_id in self.targets else self
