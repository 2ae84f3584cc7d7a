"""A member of a share group: identity, subscription and assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LEAVING: Final = -1
"""The epoch of a member that leaves."""
JOINING: Final = 0
"""The epoch of a member that joins, or joins again."""
STABLE: Final = 0
"""The only state of a member in records: members revoke and take partitions in one step."""

Target = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""
NO_TARGET: Final[Target] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMember:
    """A member of a share group."""

    id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Target = field(default_factory=dict)
