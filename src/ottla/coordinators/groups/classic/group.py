"""A classic group and its members, as immutable values.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader synced──▶ Stable
      ▲                   │  ▲                                │                                │
      └──all have left────┘  └──────── a member joins, changes, leaves or dies ────────────────┘

A generation begins when all members have joined; their JoinGroup requests are parked until then. The group's record is
written when the leader sends the assignment and when the group becomes empty. A coordinator that takes over in between
knows only the previous generation and reuses the number of the unfinished one, in which no member had an assignment.

A group that only commits offsets has no record of its own: it is an empty classic group as long as it has offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.state import NO_TIMESTAMP, CommittedOffset
from ottla.protocol.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.records.group_records import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.wire.codec import decode_from
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.state_machine.decision import Ticket
from ottla.storage.state_machine.entries import Stored

CONSUMER: Final = "consumer"
"""The protocol type of consumers, the only type whose subscriptions the coordinator can read."""
_SUBSCRIPTION_VERSION_BYTES: Final = 2


class ClassicGroupState(StrEnum):
    """The state of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicProtocol(NamedTuple):
    """An assignment strategy that a member supports, with the metadata that the leader gets under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupMember:
    """A member of a classic group."""

    id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    session_timeout_ms: int = 0
    protocols: tuple[ClassicProtocol, ...] = ()
    assignment: bytes = b""
    join_ticket: Ticket | None = None
    """Its JoinGroup request, while it waits for the next generation."""
    sync_ticket: Ticket | None = None
    """Its SyncGroup request, while it waits for the leader's assignment."""
    is_new: bool = False
    """Whether it has not been part of a generation yet."""

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class InitialDelay(NamedTuple):
    """The delay of a group's first rebalance, which lets more members join (group.initial.rebalance.delay.ms)."""

    delay_ms: int
    """The length of the current delay."""
    remaining_ms: int
    """By how much the delay may be extended afterwards."""
    has_new_members: bool = False
    """Whether members joined during the delay, so that it is extended."""


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A group of the classic protocol. A group that only commits offsets has neither members nor a protocol type."""

    id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    state_since_ms: int = NO_TIMESTAMP
    type: str | None = None
    """The protocol type that its members share."""
    protocol: str | None = None
    """The protocol chosen for this generation."""
    generation: int = 0
    leader: str | None = None
    members: Mapping[str, ClassicGroupMember] = field(default_factory=dict)
    pending_join_members: frozenset[str] = frozenset()
    """Members that got an id and have not joined with it yet."""
    pending_sync_members: frozenset[str] = frozenset()
    """Members of this generation that have not sent SyncGroup yet."""
    initial_delay: InitialDelay | None = None
    """Set during the first rebalance after the group was empty."""
    topics: frozenset[str] | None = None
    """The topics that the members are subscribed to; None if unknown."""
    last_record: GroupMetadataValue | None = field(default=None, compare=False, repr=False)
    """The last record that this coordinator wrote for the group. Replaying this very object changes nothing."""

    @property
    def kind(self) -> str:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_join_members and all(member.join_ticket is not None for member in self.members.values())

    @property
    def joining_member_count(self) -> int:
        return sum(member.join_ticket is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def parked_tickets(self) -> Iterator[Ticket]:
        for member in self.members.values():
            if member.join_ticket is not None:
                yield member.join_ticket
            if member.sync_ticket is not None:
                yield member.sync_ticket

    # -- members --

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the id of the member with this group.instance.id."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member.id
        return None

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise unless the member exists and is the current holder of its instance id."""
        if instance_id is not None:
            holder_id = self.static_member_id(instance_id)
            if holder_id is None:
                raise UnknownMemberId(f"group {self.id} has no member with instance id {instance_id}")
            if holder_id != member_id:
                raise FencedInstanceId(f"instance id {instance_id} of group {self.id} belongs to member {holder_id}")
        if member_id not in self.members:
            raise UnknownMemberId(f"group {self.id} has no member {member_id}")

    def with_member(self, member: ClassicGroupMember) -> ClassicGroup:
        """Return the group with a member added or replaced."""
        return replace(
            self,
            members={**self.members, member.id: member},
            pending_join_members=self.pending_join_members - {member.id},
        )

    def without_member(self, member_id: str) -> ClassicGroup:
        """Return the group without a member, joined or pending. If it was the leader, the next member leads."""
        members = {other_id: member for other_id, member in self.members.items() if other_id != member_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(
            self,
            members=members,
            leader=leader,
            pending_join_members=self.pending_join_members - {member_id},
            pending_sync_members=self.pending_sync_members - {member_id},
        )

    # -- protocols --

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all other members must support at least one of them."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        return self.type == protocol_type and not self._common_protocols().isdisjoint(names)

    def choose_protocol(self) -> str:
        """Return the protocol that most members prefer, of those that all members support."""
        common = self._common_protocols()
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        supported = [{protocol.name for protocol in member.protocols} for member in self.members.values()]
        return set.intersection(*supported) if supported else set()

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all subscriptions; None if the members are no consumers or their metadata is invalid."""
        if self.type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic for member in self.members.values() for topic in _topics_of(member.metadata(self.protocol))
            )
        except ProtocolError:
            return None

    # -- the interface of all groups --

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        if epoch < 0 and self.is_empty:
            return  # a consumer without group management, or an administrator who resets offsets
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {epoch}")
        elif not in_transaction and not self.is_empty:
            # Transactional commits before v3 name no member.
            raise UnknownMemberId(f"group {self.id} has members: only they may commit its offsets")
        if not in_transaction and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress(f"group {self.id} waits for the assignment of generation {self.generation}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow everyone: OffsetFetch does not check members of classic groups."""

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.type != CONSUMER:
            raise NonEmptyGroup(f"group {self.id} has members whose subscribed topics are unknown")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup(f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        return self.type == CONSUMER if self.topics is None else topic in self.topics

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        if self.type is None:
            return committed.commit_timestamp
        if self.is_empty:
            return committed.commit_timestamp if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        if self.type == CONSUMER and self.topics is not None and self.state is ClassicGroupState.STABLE:
            return committed.commit_timestamp
        return None

    def tombstones(self) -> Sequence[Stored]:
        return (Stored(GroupMetadataKey(group=self.id), None),)


def _topics_of(metadata: bytes) -> list[str]:
    """Return the topics of a subscription. All versions begin with them."""
    if len(metadata) < _SUBSCRIPTION_VERSION_BYTES:
        raise ProtocolError(f"a subscription of {len(metadata)} bytes is too short for its version")
    subscription, _ = decode_from(ConsumerProtocolSubscription, 0, memoryview(metadata)[_SUBSCRIPTION_VERSION_BYTES:])
    return list(subscription.topics)
