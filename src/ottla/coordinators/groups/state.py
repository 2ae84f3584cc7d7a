"""What one partition of `__consumer_offsets` holds: groups, and the offsets they committed."""

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
    """A partition whose offset was committed."""

    topic: str
    partition: int


class Committed(NamedTuple):
    """How far a group has come with a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    order: int = 0
    """Rises with every commit on this partition of the topic: of two, the later one counts, whenever it was decided."""


class CommittedPartition(NamedTuple):
    """A partition whose offset somebody wants to commit."""

    topic: str
    topic_id: bytes
    partition: int


Offsets = Map[OffsetKey, Committed]
NO_OFFSETS: Offsets = Map()


class Group(Protocol):
    """What groups of all kinds have in common."""

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """How Kafka names its type: "classic", "consumer", "share" or "streams"."""
        ...

    @property
    def state_name(self) -> str:
        """The name of its state as it is listed, such as "Stable"."""
        ...

    @property
    def protocol_type(self) -> str:
        """As ListGroups tells it: "consumer" for most."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int, in_transaction: bool
    ) -> None:
        """Raise unless a member may commit offsets in its generation or epoch."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless a member may ask for offsets; no member is None."""
        ...

    def check_offset_delete(self) -> None:
        """Raise unless offsets may be deleted; those of topics that members read stay anyway."""
        ...

    def check_delete(self) -> None:
        """Raise unless the group may be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets must stay."""
        ...

    def expires_since(self, committed: Committed) -> int | None:
        """From when on the retention of an offset counts; None while nothing of the group expires."""
        ...

    def tombstones(self) -> Sequence[Stored]:
        """The records that delete it, without its offsets."""
        ...

    def parked(self) -> Iterable[Ticket]:
        """The requests that wait in it."""
        ...


@dataclass(frozen=True, slots=True)
class GroupsState:
    """The state of the group coordinator on one partition."""

    groups: Map[str, Group] = field(default_factory=Map)
    offsets: Map[str, Offsets] = field(default_factory=Map)
    """By group. Whoever has offsets is in `groups` too, if only as an empty classic group without a protocol."""
    pending: Map[int, Map[str, Offsets]] = field(default_factory=Map)
    """Offsets of transactions that are not decided yet, by producer id and group."""
    open: Map[str, frozenset[int]] = field(default_factory=Map)
    """The producers whose transactions hold offsets, by group: the same as `pending`, the other way round."""
    commits: int = 0
    """How many offsets were committed so far; gives them their order."""

    def with_group(self, group: Group) -> GroupsState:
        """With a group added or replaced."""
        return replace(self, groups=self.groups.set(group.id, group))

    def without_group(self, group_id: str) -> GroupsState:
        """Without a group; its offsets have records of their own."""
        return replace(self, groups=self.groups.delete(group_id)) if group_id in self.groups else self

    def has_pending(self, group_id: str, key: OffsetKey) -> bool:
        """Whether an open transaction commits the offset of a partition."""
        producers = self.open.get(group_id)
        return producers is not None and any(
            key in self.pending[producer].get(group_id, NO_OFFSETS) for producer in producers
        )


class _EpochGroupClass(Protocol):
    kind: ClassVar[str]


G = TypeVar("G", bound=_EpochGroupClass)


def find_group(state: GroupsState, group_id: str, group_class: type[G]) -> G:
    """Return the group with this id; raise GroupIdNotFound if there is none or it is of another kind."""
    group = state.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    if not isinstance(group, group_class):
        raise GroupIdNotFound(f"Group {group_id} is not a {group_class.kind} group.")
    return group
