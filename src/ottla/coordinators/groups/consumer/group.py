"""A consumer group as an immutable value: its members, its target assignment and the owners of partitions.

    group epoch ≥ target assignment epoch ≥ epoch of each member

The group epoch rises when members, subscriptions or topics change. The target assignment is computed for one group
epoch. Each member moves towards it with its own heartbeats, at its own epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from immutables import Map

from ottla.coordinators.groups.consumer.member import NO_TARGET, ConsumerGroupMember, MemberState, Owned, Target
from ottla.coordinators.groups.consumer.records import group_tombstones
from ottla.coordinators.groups.epoch_group import (
    FIRST_COMMIT_WITH_EPOCH,
    FIRST_EPOCH,
    REFRESH_DUE,
    EpochGroup,
    RefreshDeadline,
    intersects,
    reconciliation_state,
    update_counts,
)
from ottla.coordinators.groups.state import CommittedOffset, CommittedPartition
from ottla.metadata.image.values import NO_ENTRIES
from ottla.protocol.errors import (
    IllegalGeneration,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.storage.state_machine.entries import Stored


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, with the metadata version and the time."""

    topics: frozenset[str]
    version: int
    timestamp: int


class RegexResolution(NamedTuple):
    """The resolution of regular expressions against all topic names, in steps. Not recorded."""

    regexes: tuple[str, ...]
    names: tuple[str, ...]
    """The names that are not matched yet."""
    matches: Mapping[str, frozenset[str]]
    version: int
    timestamp: int
    visible: Callable[[Collection[str]], Collection[str] | None]
    """Returns the topics that the requesting member may describe, of those given; None if that is not decided yet."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup(EpochGroup[ConsumerGroupMember]):
    """A group of the consumer protocol. Some members may use the classic protocol."""

    kind = "consumer"

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the subscribed topics at the group epoch."""
    members: Map[str, ConsumerGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    """When the target was computed; 0 if unknown."""
    targets: Map[str, Target] = NO_ENTRIES
    resolved_regexes: Map[str, ResolvedRegex] = NO_ENTRIES
    has_partition_metadata: bool = False
    """Whether an older coordinator left a partition metadata record, which must be deleted."""
    # Derived from the members:
    static_members: Map[str, str] = NO_ENTRIES
    """Member ids by instance id."""
    owners: Map[tuple[bytes, int], str] = NO_ENTRIES
    """The owner of each partition, including those that must revoke it."""
    subscriber_counts: Map[str, int] = NO_ENTRIES
    """The number of members that subscribe to a topic by name."""
    regex_counts: Map[str, int] = NO_ENTRIES
    """The number of members that use a regular expression."""
    # Not recorded:
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    regex_resolution: RegexResolution | None = None
    """The resolution in progress."""
    new_topics_version: int = -1
    """The metadata version of the last topic creation; -1 if unknown."""
    rejoin_deadlines: Map[str, int] = NO_ENTRIES
    """The deadlines of classic members that must join again, by member id."""

    # -- the interface of all groups --

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        return reconciliation_state(self)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        """Raise unless the member may commit. Commits in older epochs also need `check_partitions`."""
        if epoch < 0 and not self.members:
            return  # a consumer without group management, or an administrator who resets offsets
        if in_transaction and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not in_transaction and not member.is_classic and version < FIRST_COMMIT_WITH_EPOCH:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch > member.epoch:
            error_class, epoch_name = _stale_epoch_error(member)
            raise error_class(f"Received {epoch_name} {epoch} is newer than current member epoch {member.epoch}.")

    def check_partitions(self, member_id: str, epoch: int, partitions: Iterable[CommittedPartition]) -> None:
        """Raise if a member commits in an older epoch for a partition that it got after that epoch."""
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return
        error_class, epoch_name = _stale_epoch_error(member)
        for topic, topic_id, partition in partitions:
            since = member.epoch_of(topic_id, partition)
            if since is None:
                raise error_class(f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
            if epoch < since:
                raise error_class(
                    f"Received {epoch_name} {epoch} is older than assignment epoch {since} for partition "
                    f"{topic}-{partition}."
                )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise if the request names a member whose epoch differs."""
        if member_id is None and epoch < 0:
            return
        member = self.member("" if member_id is None else member_id)
        if epoch != member.epoch:
            if member.is_classic:
                raise IllegalGeneration(
                    f"The received generation id {epoch} does not match the expected member epoch {member.epoch}."
                )
            raise StaleMemberEpoch(
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            )

    def check_offset_delete(self) -> None:
        """Allow everyone; offsets of subscribed topics are kept in any case."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriber_counts or any(
            topic in resolved.topics for resolved in self.resolved_regexes.values()
        )

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member is subscribed to one of the topics."""
        return intersects(topics, self.subscriber_counts) or any(
            intersects(topics, resolved.topics) for resolved in self.resolved_regexes.values()
        )

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members), sorted(self.resolved_regexes))

    # -- members --

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member with an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerGroupMember) -> Target:
        """Return the member's part of the target. A member that replaces a static member inherits its target."""
        if member.instance_id is None:
            return self.targets.get(member.id, NO_TARGET)
        holder_id = self.static_members.get(member.instance_id)
        return NO_TARGET if holder_id is None else self.targets.get(holder_id, NO_TARGET)

    def is_owned_by_other(self, member: ConsumerGroupMember, topic_id: bytes, partition: int) -> bool:
        """Whether another member still owns the partition."""
        return (topic_id, partition) in self.owners and partition not in member.revoking.get(topic_id, ())

    def waits_for_release(self, member: ConsumerGroupMember) -> bool:
        """Whether the member waits for a partition that its owner has not released yet."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.targets.get(member.id, NO_TARGET).items()
            for partition in partitions
        )

    @property
    def classic_members(self) -> list[ConsumerGroupMember]:
        return [member for member in self.members.values() if member.is_classic]

    def subscribed_topics(self) -> set[str]:
        """Return all topics that members name or that their resolved expressions match."""
        return set(self.subscriber_counts).union(*(resolved.topics for resolved in self.resolved_regexes.values()))

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the subscribed topics of one member. An unresolved expression matches none."""
        resolved = self.resolved_regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_uniform(self) -> bool:
        """Whether all members have the same subscription, by the same approximation as Kafka's."""
        count = len(self.members)
        if not self.regex_counts:
            return all(self.subscriber_counts.get(topic) == count for topic in self.subscribed_topics())
        if next(iter(self.regex_counts.values())) != count or self.subscriber_counts:
            return False
        matches = Counter(topic for resolved in self.resolved_regexes.values() for topic in resolved.topics)
        return all(times == 1 for times in matches.values())

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members request; None if none requests one."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        # Ties go to the first in the order of Java's HashMap.
        names = hash_order(sorted(votes), string_hash, grown_table_size(len(votes)))
        return max(names, key=votes.__getitem__, default=None)

    # -- changes --

    def with_member(self, new: ConsumerGroupMember) -> ConsumerGroup:
        """Return the group with a member added or replaced."""
        old = self.members.get(new.id)
        static_members = self.static_members
        if new.instance_id is not None and static_members.get(new.instance_id) != new.id:
            static_members = static_members.set(new.instance_id, new.id)
        return replace(
            self,
            members=self.members.set(new.id, new),
            static_members=static_members,
            owners=_owners(self.owners, old, new),
            subscriber_counts=update_counts(self.subscriber_counts, old.topics if old else (), new.topics),
            regex_counts=update_counts(self.regex_counts, _regex_of(old), _regex_of(new)),
        )

    def without_member(self, member_id: str) -> ConsumerGroup:
        """Return the group without a member; its partitions are free."""
        old = self.members[member_id]
        static_members = self.static_members
        if old.instance_id is not None and old.instance_id in static_members:
            static_members = static_members.delete(old.instance_id)
        return replace(
            self,
            members=self.members.delete(member_id),
            static_members=static_members,
            owners=_owners(self.owners, old, None),
            subscriber_counts=update_counts(self.subscriber_counts, old.topics, ()),
            regex_counts=update_counts(self.regex_counts, _regex_of(old), ()),
        )

    def with_target(self, member_id: str, target: Target) -> ConsumerGroup:
        return replace(self, targets=self.targets.set(member_id, target))

    def without_target(self, member_id: str) -> ConsumerGroup:
        return replace(self, targets=self.targets.delete(member_id)) if member_id in self.targets else self


def _stale_epoch_error(member: ConsumerGroupMember) -> tuple[type[IllegalGeneration | StaleMemberEpoch], str]:
    """Return the error class for a wrong epoch of the member, and the name of the epoch in its protocol."""
    return (IllegalGeneration, "generation id") if member.is_classic else (StaleMemberEpoch, "member epoch")


def _regex_of(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    return (member.regex,) if member is not None and member.regex else ()


def _owners(
    owners: Map[tuple[bytes, int], str], old: ConsumerGroupMember | None, new: ConsumerGroupMember | None
) -> Map[tuple[bytes, int], str]:
    """Return the owners after a member changed. Partitions that it lost are free, unless another member has them."""
    if old is not None and new is not None and old.assigned is new.assigned and old.revoking is new.revoking:
        return owners
    before = _partitions(old)
    after = _partitions(new)
    if before == after:
        return owners
    changed = owners.mutate()
    if old is not None:
        for partition in before - after:
            if changed.get(partition) == old.id:
                del changed[partition]
    if new is not None:
        for partition in after:
            changed[partition] = new.id
    return changed.finish()


def _partitions(member: ConsumerGroupMember | None) -> set[tuple[bytes, int]]:
    if member is None:
        return set()
    return {*_iterate(member.assigned), *_iterate(member.revoking)}


def _iterate(owned: Owned) -> Iterator[tuple[bytes, int]]:
    return ((topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions)
