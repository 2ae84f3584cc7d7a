"""A share group as an immutable value: its members, its target assignment and its initialized share partitions.

    group epoch ≥ target assignment epoch ≥ epoch of each member

Several members may read a partition, so no member waits for another: it gets its part of the target with its next
heartbeat.
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
    """The hash of the subscribed topics at the group epoch."""
    members: Map[str, ShareGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    targets: Map[str, Target] = NO_ENTRIES
    partitions: SharePartitions | None = None
    """None until the first record of share partitions."""
    subscriber_counts: Map[str, int] = NO_ENTRIES
    """The number of members that subscribe to a topic; derived from the members."""
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    """Not recorded."""

    # -- the interface of all groups --

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        raise self._not_a_consumer_group()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._not_a_consumer_group()

    def check_offset_delete(self) -> None:
        raise self._not_a_consumer_group()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriber_counts

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member is subscribed to one of the topics."""
        return intersects(topics, self.subscriber_counts)

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return None

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members))

    def _not_a_consumer_group(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.id} is not a consumer group.")

    # -- members --

    def target_of(self, member: ShareGroupMember) -> Target:
        return self.targets.get(member.id, NO_TARGET)

    def is_uniform(self) -> bool:
        """Whether all members have the same subscription."""
        return all(count == len(self.members) for count in self.subscriber_counts.values())

    def lacks_assignment(self) -> bool:
        """Whether share partitions were initialized after the target was computed."""
        if not self.members or self.partitions is None:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, numbers in target.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        return any(
            topic.name in self.subscriber_counts and assigned.get(topic_id, set()) != set(topic.partitions)
            for topic_id, topic in self.partitions.initialized.items()
        )

    # -- changes --

    def with_member(self, new: ShareGroupMember) -> ShareGroup:
        """Return the group with a member added or replaced."""
        old = self.members.get(new.id)
        names = update_counts(self.subscriber_counts, old.topics if old is not None else frozenset(), new.topics)
        return replace(self, members=self.members.set(new.id, new), subscriber_counts=names)

    def without_member(self, member_id: str) -> ShareGroup:
        """Return the group without a member."""
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
