"""A consumer group as a value that never changes: its members, its target, who owns what, and what can be asked of it.

    group epoch ≥ target's epoch ≥ each member's epoch

The group's epoch rises when members, subscriptions or topics change. A target, made for an epoch, says who should have
what. Members move towards it one by one with their heartbeats, each at its own epoch.
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
    """What an expression was found to match, in which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp: int


class RegexResolution(NamedTuple):
    """Expressions being held against the names of all topics, some at a time. Not recorded."""

    regexes: tuple[str, ...]
    names: tuple[str, ...]
    """Those that are left."""
    found: Mapping[str, frozenset[str]]
    version: int
    timestamp: int
    visible: Callable[[Collection[str]], Collection[str] | None]
    """The topics of some that the member that brought this up may describe; None while that is not decided yet."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup(EpochGroup[ConsumerGroupMember]):
    """A group of the consumer protocol; some of its members may speak the classic one."""

    kind = "consumer"

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Of the topics that it reads, as they were when the epoch began."""
    members: Map[str, ConsumerGroupMember] = NO_ENTRIES
    target_epoch: int = FIRST_EPOCH
    target_timestamp: int = 0
    """When the target was made; 0 if that is not known."""
    targets: Map[str, Target] = NO_ENTRIES
    resolved_regexes: Map[str, ResolvedRegex] = NO_ENTRIES
    has_partition_metadata: bool = False
    """Whether an older coordinator left a record of the topics' partitions, to be deleted."""
    # What follows from the members:
    static_members: Map[str, str] = NO_ENTRIES
    """Member ids by instance id."""
    owners: Map[tuple[bytes, int], str] = NO_ENTRIES
    """Who has a partition, be it to give it up."""
    subscriber_counts: Map[str, int] = NO_ENTRIES
    """How many members name a topic."""
    regex_counts: Map[str, int] = NO_ENTRIES
    """How many members use an expression."""
    # Not recorded:
    refresh_deadline: RefreshDeadline = REFRESH_DUE
    regex_resolution: RegexResolution | None = None
    """The look for topics that is under way."""
    new_topics_version: int = -1
    """The version of the metadata in which topics were last created; -1 if that is not known."""
    rejoin_deadlines: Map[str, int] = NO_ENTRIES
    """By when classic members that were told to join again must have done so."""

    # -- what all groups are asked --

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        return reconciliation_state(self)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        """Raise unless a member may commit. In an older epoch that depends on the partitions: `check_partitions`."""
        if epoch < 0 and not self.members:
            return  # a consumer that assigns itself, or somebody who resets offsets
        if in_transaction and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not in_transaction and not member.is_classic and version < FIRST_COMMIT_WITH_EPOCH:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch > member.epoch:
            refused, word = _stale_epoch_error(member)
            raise refused(f"Received {word} {epoch} is newer than current member epoch {member.epoch}.")

    def check_partitions(self, member_id: str, epoch: int, partitions: Iterable[CommittedPartition]) -> None:
        """Raise if a member commits in an older epoch what it has not had since then."""
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return
        refused, word = _stale_epoch_error(member)
        for topic, topic_id, partition in partitions:
            since = member.epoch_of(topic_id, partition)
            if since is None:
                raise refused(f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
            if epoch < since:
                raise refused(
                    f"Received {word} {epoch} is older than assignment epoch {since} for partition {topic}-{partition}."
                )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless a member, if it is one who asks, has the epoch that it says."""
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
        """Anyone may, but for topics that are read."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriber_counts or any(
            topic in resolved.topics for resolved in self.resolved_regexes.values()
        )

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of these topics."""
        return intersects(topics, self.subscriber_counts) or any(
            intersects(topics, resolved.topics) for resolved in self.resolved_regexes.values()
        )

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp

    def tombstones(self) -> Sequence[Stored]:
        return group_tombstones(self.id, sorted(self.members), sorted(self.resolved_regexes))

    # -- members --

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Who holds an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerGroupMember) -> Target:
        """What a member should have. One that takes the place of a static member has the target of that one."""
        if member.instance_id is None:
            return self.targets.get(member.id, NO_TARGET)
        known = self.static_members.get(member.instance_id)
        return NO_TARGET if known is None else self.targets.get(known, NO_TARGET)

    def is_owned_by_other(self, member: ConsumerGroupMember, topic_id: bytes, partition: int) -> bool:
        """Whether a partition is still somebody else's."""
        return (topic_id, partition) in self.owners and partition not in member.revoking.get(topic_id, ())

    def waits_for_release(self, member: ConsumerGroupMember) -> bool:
        """Whether a member waits for a partition that has not been released yet."""
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
        """All topics that its members name or that their expressions were found to match."""
        return set(self.subscriber_counts).union(*(resolved.topics for resolved in self.resolved_regexes.values()))

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics that one member reads; an expression that is not resolved yet matches none."""
        resolved = self.resolved_regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_uniform(self) -> bool:
        """Whether all members read the same topics, as far as the coordinator looks."""
        count = len(self.members)
        if not self.regex_counts:
            return all(self.subscriber_counts.get(topic) == count for topic in self.subscribed_topics())
        if next(iter(self.regex_counts.values())) != count or self.subscriber_counts:
            return False
        matches = Counter(topic for resolved in self.resolved_regexes.values() for topic in resolved.topics)
        return all(times == 1 for times in matches.values())

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for; None if none does."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        # Of equals the first in Java's order counts.
        names = hash_order(sorted(votes), string_hash, grown_table_size(len(votes)))
        return max(names, key=votes.__getitem__, default=None)

    # -- changes --

    def with_member(self, new: ConsumerGroupMember) -> ConsumerGroup:
        """With a member added or changed."""
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
        """Without a member; what it owned is free."""
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
    """What a member is told whose epoch is wrong, and what it calls its epoch."""
    return (IllegalGeneration, "generation id") if member.is_classic else (StaleMemberEpoch, "member epoch")


def _regex_of(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    return (member.regex,) if member is not None and member.regex else ()


def _owners(
    owners: Map[tuple[bytes, int], str], old: ConsumerGroupMember | None, new: ConsumerGroupMember | None
) -> Map[tuple[bytes, int], str]:
    """Who has what after a member changed. What it lost is free, unless another one has it by now."""
    if old is not None and new is not None and old.assigned is new.assigned and old.revoking is new.revoking:
        return owners
    before = _partitions(old)
    after = _partitions(new)
    if before == after:
        return owners
    changed = owners.mutate()
    if old is not None:
        for each in before - after:
            if changed.get(each) == old.id:
                del changed[each]
    if new is not None:
        for each in after:
            changed[each] = new.id
    return changed.finish()


def _partitions(member: ConsumerGroupMember | None) -> set[tuple[bytes, int]]:
    if member is None:
        return set()
    return {*_each(member.assigned), *_each(member.revoking)}


def _each(owned: Owned) -> Iterator[tuple[bytes, int]]:
    return ((topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions)
