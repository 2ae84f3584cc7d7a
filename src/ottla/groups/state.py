"""What one partition of `__consumer_offsets` holds: groups, and the offsets they committed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from immutables import Map

from ottla.wire.types import ZERO_UUID

NO_TIMESTAMP = -1


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


Offsets = Map[OffsetKey, Committed]


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


@dataclass(frozen=True, slots=True)
class GroupsState:
    """The state of the group coordinator on one partition."""

    groups: Map[str, Group] = field(default_factory=Map)
    offsets: Map[str, Offsets] = field(default_factory=Map)
    """By group. A group may be without an entry in `groups`: its members keep their own counsel, and only commit."""
    pending: Map[int, Map[str, Offsets]] = field(default_factory=Map)
    """Offsets of transactions that are not decided yet, by producer id and group."""

    def with_group(self, group: Group) -> GroupsState:
        """With a group added or replaced."""
        return replace(self, groups=self.groups.set(group.id, group))

    def without_group(self, group_id: str) -> GroupsState:
        """Without a group; its offsets have records of their own."""
        return replace(self, groups=self.groups.delete(group_id)) if group_id in self.groups else self
