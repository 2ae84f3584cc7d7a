"""The state of one partition of `__consumer_offsets`: groups and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from immutables import Map

from ottla.protocol.errors import GroupIdNotFound
from ottla.protocol.wire.types import ZERO_UUID
from ottla.storage.state_machine.decision import Ticket
from ottla.storage.state_machine.entries import Stored

NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_EPOCH = -1


class OffsetKey(NamedTuple):
    """A partition with a committed offset."""

    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset of a group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    order: int = 0
    """The number of the commit in the log. Of two commits of an offset the one written last counts, even if the first
    was part of a transaction that ended later."""


class CommittedPartition(NamedTuple):
    """A partition that a commit request names."""

    topic: str
    topic_id: bytes
    partition: int


Offsets = Map[OffsetKey, CommittedOffset]
NO_OFFSETS: Offsets = Map()


class Group(Protocol):
    """The interface of groups of all kinds."""

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """Kafka's name of the group type: "classic", "consumer", "share" or "streams"."""
        ...

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it, such as "Stable"."""
        ...

    @property
    def protocol_type(self) -> str:
        """The protocol type as ListGroups shows it, such as "consumer"."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        """Raise unless the member may commit offsets in this generation or epoch."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless the member may fetch offsets; `member_id` is None for requests without a member."""
        ...

    def check_offset_delete(self) -> None:
        """Raise unless offsets may be deleted. Offsets of subscribed topics are kept in any case."""
        ...

    def check_delete(self) -> None:
        """Raise unless the group may be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic, so that its offsets must be kept."""
        ...

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began; None while the group's offsets do not expire."""
        ...

    def tombstones(self) -> Sequence[Stored]:
        """Return the records that delete the group, without those of its offsets."""
        ...

    def parked_tickets(self) -> Iterable[Ticket]:
        """Return the tickets of the requests that wait in the group."""
        ...


@dataclass(frozen=True, slots=True)
class GroupsState:
    """The state of the group coordinator on one partition."""

    groups: Map[str, Group] = field(default_factory=Map)
    offsets: Map[str, Offsets] = field(default_factory=Map)
    """By group. A group with offsets is in `groups` too, at least as an empty classic group without a protocol."""
    pending_offsets: Map[int, Map[str, Offsets]] = field(default_factory=Map)
    """Offsets of open transactions, by producer id and group."""
    open_producers: Map[str, frozenset[int]] = field(default_factory=Map)
    """The producers with pending offsets, by group: the index of `pending_offsets`."""
    commit_count: int = 0
    """The number of commits so far, from which each commit gets its order."""

    def with_group(self, group: Group) -> GroupsState:
        """Return the state with a group added or replaced."""
        return replace(self, groups=self.groups.set(group.id, group))

    def without_group(self, group_id: str) -> GroupsState:
        """Return the state without a group. Its offsets stay: they have records of their own."""
        return replace(self, groups=self.groups.delete(group_id)) if group_id in self.groups else self

    def has_pending(self, group_id: str, key: OffsetKey) -> bool:
        """Whether an open transaction holds an offset of the partition."""
        producers = self.open_producers.get(group_id)
        return producers is not None and any(
            key in self.pending_offsets[producer].get(group_id, NO_OFFSETS) for producer in producers
        )


class _EpochGroupClass(Protocol):
    kind: ClassVar[str]


G = TypeVar("G", bound=_EpochGroupClass)


def find_group(state: GroupsState, group_id: str, group_class: type[G]) -> G:
    """Return the group with this id; raise GroupIdNotFound if it does not exist or is of another kind."""
    group = state.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    if not isinstance(group, group_class):
        raise GroupIdNotFound(f"Group {group_id} is not a {group_class.kind} group.")
    return group
