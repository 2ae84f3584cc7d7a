"""A classic group and its members, as values that never change: what they are, and what can be asked of them.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader synced──▶ Stable
      ▲                   │  ▲                                │                                │
      └──all have left────┘  └──────── a member joins, changes, leaves or dies ────────────────┘

A generation begins when all have joined: members that wait for it are parked with their requests. It is written down
when its leader hands in the assignment, and when the group has become empty; in between a coordinator that takes over
knows the generation before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.state import NO_TIMESTAMP, Committed
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
"""The protocol type of consumers, the only one whose subscriptions the coordinator can read."""
_SUBSCRIPTION_VERSION_BYTES: Final = 2


class State(StrEnum):
    """Where a group is in its life, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Protocol(NamedTuple):
    """A way to assign partitions that a member can take part in, with what it tells the leader then."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of a group's members."""

    id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    session_timeout_ms: int = 0
    protocols: tuple[Protocol, ...] = ()
    assignment: bytes = b""
    joining: Ticket | None = None
    """Its JoinGroup, while it waits for the next generation."""
    syncing: Ticket | None = None
    """Its SyncGroup, while it waits for the leader's assignment."""
    is_new: bool = False
    """Whether it has been in no generation yet."""

    def metadata(self, protocol: str | None) -> bytes:
        """What it tells the leader under a protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class InitialDelay(NamedTuple):
    """How a group's first rebalance waits for members that are about to come (group.initial.rebalance.delay.ms)."""

    delay_ms: int
    """How long it waits this time."""
    remaining_ms: int
    """How much longer it may wait after that."""
    grew: bool = False
    """Whether members came meanwhile, so that it waits again."""


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A group of the classic protocol; one that only commits offsets has neither members nor a protocol type."""

    id: str
    state: State = State.EMPTY
    state_since_ms: int = NO_TIMESTAMP
    type: str | None = None
    """The protocol type that its members have in common."""
    protocol: str | None = None
    """The protocol of this generation."""
    generation: int = 0
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    """Members that were given an id and have not come back with it yet."""
    unsynced: frozenset[str] = frozenset()
    """Members that have learnt of this generation and not asked for their assignment yet."""
    initial: InitialDelay | None = None
    """While the rebalance under way is the first one since the group was empty."""
    topics: frozenset[str] | None = None
    """What consumers are subscribed to; None if that is not known."""
    recorded: GroupMetadataValue | None = field(default=None, compare=False, repr=False)
    """The last record of it that was decided here. When it comes back as this very object, it tells nothing new."""

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
        return self.state is State.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def waiting_joins(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the slowest member needs."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def parked(self) -> Iterator[Ticket]:
        for member in self.members.values():
            if member.joining is not None:
                yield member.joining
            if member.syncing is not None:
                yield member.syncing

    # -- members --

    def static_member(self, instance_id: str) -> str | None:
        """The member with a group.instance.id."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member.id
        return None

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise unless there is such a member, and it is the one that the instance id is held by now."""
        if instance_id is not None:
            known = self.static_member(instance_id)
            if known is None:
                raise UnknownMemberId(f"{self.id} has no member of instance {instance_id}")
            if known != member_id:
                raise FencedInstanceId(f"{instance_id} of {self.id} is the member {known}")
        if member_id not in self.members:
            raise UnknownMemberId(f"{self.id} has no member {member_id}")

    def with_member(self, member: Member) -> ClassicGroup:
        """With a member added or replaced."""
        return replace(self, members={**self.members, member.id: member}, pending=self.pending - {member.id})

    def without_member(self, member_id: str) -> ClassicGroup:
        """Without a member, be it one or about to become one; another leads if it did."""
        members = {known: member for known, member in self.members.items() if known != member_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(
            self,
            members=members,
            leader=leader,
            pending=self.pending - {member_id},
            unsynced=self.unsynced - {member_id},
        )

    # -- protocols --

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can take part: all others must have at least one of them."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        return self.type == protocol_type and not self._common_protocols().isdisjoint(names)

    def choose_protocol(self) -> str:
        """The one that most members like best of those that all have."""
        common = self._common_protocols()
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        each = ({protocol.name for protocol in member.protocols} for member in self.members.values())
        common = next(each, set())
        return common.intersection(*each)

    def subscribed_topics(self) -> frozenset[str] | None:
        """What its members read, if they are consumers and their metadata can be read."""
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

    # -- what all groups are asked --

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        if epoch < 0 and self.is_empty:
            return  # a consumer that assigns itself, or somebody who resets offsets
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise IllegalGeneration(f"{self.id} is in generation {self.generation}, not {epoch}")
        elif not in_transaction and not self.is_empty:
            # A group with members: only they commit; a transaction may come without one, from clients before v3.
            raise UnknownMemberId(f"{self.id} has members, and only they commit its offsets")
        if not in_transaction and self.state is State.COMPLETING:
            raise RebalanceInProgress(f"{self.id} waits for the assignment of generation {self.generation}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anyone may: members of classic groups are not told apart here."""

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.type != CONSUMER:
            raise NonEmptyGroup(f"{self.id} has members, whose topics are not known")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup(f"{self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        return self.type == CONSUMER if self.topics is None else topic in self.topics

    def expires_since(self, committed: Committed) -> int | None:
        if self.type is None:
            return committed.commit_timestamp
        if self.is_empty:
            return committed.commit_timestamp if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        if self.type == CONSUMER and self.topics is not None and self.state is State.STABLE:
            return committed.commit_timestamp
        return None

    def tombstones(self) -> Sequence[Stored]:
        return (Stored(GroupMetadataKey(group=self.id), None),)


def _topics_of(metadata: bytes) -> list[str]:
    """The topics of a subscription; all versions begin with them."""
    if len(metadata) < _SUBSCRIPTION_VERSION_BYTES:
        raise ProtocolError(f"a subscription of {len(metadata)} bytes")
    subscription, _ = decode_from(ConsumerProtocolSubscription, 0, memoryview(metadata)[_SUBSCRIPTION_VERSION_BYTES:])
    return list(subscription.topics)
