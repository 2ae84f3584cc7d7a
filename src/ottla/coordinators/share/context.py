"""What a decision of the share coordinator needs beside the request: the time, the cluster, the settings."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.metadata.image.image import Image
from ottla.storage.state_machine.decision import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of one decision."""

    now_ms: int
    image: Image
    prune: Ticket
    """Is answered with a share partition and an offset: the log of its coordinator is not needed before that."""
    updates_per_snapshot: int = 500
    cold_ms: int = 300_000
    """After so long without a snapshot a share partition gets one, so that the log before it can go."""
    prune_ms: int = 300_000
