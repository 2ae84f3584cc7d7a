"""The interface of assignors: their input, their result and their error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.coordinators.groups.consumer.member import Target
from ottla.metadata.image.image import Image


class AssignmentFailed(Exception):
    """The assignor cannot compute an assignment."""


class AssignorMember(NamedTuple):
    """A member as an assignor sees it."""

    topics: Mapping[bytes, None]
    """The ids of the subscribed topics, in the order of the subscription."""
    target: Target
    """The member's part of the current target."""
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as an assignor sees it."""

    members: Mapping[str, AssignorMember]
    """By member id. The result of some assignors depends on their order."""
    partitions: Mapping[bytes, int]
    """The number of partitions of each subscribed topic."""
    is_uniform: bool
    """Whether all members have the same subscription."""
    assigned: frozenset[tuple[bytes, int]]
    """All partitions of the current target, including those of members that left."""


class Assignor(Protocol):
    """An assignor that the operator configured as a plug-in. The built-in ones are functions of a `GroupSpec`."""

    @property
    def name(self) -> str:
        """The name that members request and group descriptions show."""

    def assign(self, group: GroupSpec, image: Image) -> dict[str, Target]:
        """Return the new target of each member; raise AssignmentFailed, or an ApiError for the member."""
