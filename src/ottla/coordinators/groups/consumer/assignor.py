"""What assignors are given, and how they fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.coordinators.groups.consumer.member import Target
from ottla.metadata.image.image import Image


class AssignmentFailed(Exception):
    """No assignment could be made."""


class AssignorMember(NamedTuple):
    """A member as an assignor sees it."""

    topics: Mapping[bytes, None]
    """The ids of the topics that it reads, in the order of its subscription."""
    target: Target
    """What it should have had so far."""
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as an assignor sees it."""

    members: Mapping[str, AssignorMember]
    """By member id; their order counts where partitions are dealt out."""
    partitions: Mapping[bytes, int]
    """How many partitions a topic has."""
    is_uniform: bool
    """Whether all read the same topics."""
    assigned: frozenset[tuple[bytes, int]]
    """The partitions that the last target gave to somebody, be it a member that is gone."""


class Assignor(Protocol):
    """One that the operator has brought along; those that the coordinator has are functions of the group."""

    @property
    def name(self) -> str:
        """What members and the group's description call it."""

    def assign(self, group: GroupSpec, image: Image) -> dict[str, Target]:
        """What each member should have; raises AssignmentFailed, or another error that the member is to be told."""
