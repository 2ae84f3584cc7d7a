"""The inputs of a decision of the share coordinator beside the request: the time, the metadata, the settings."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.metadata.image.image import Image
from ottla.storage.state_machine.decision import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The inputs of one decision."""

    now_ms: int
    image: Image
    prune: Ticket
    """A ticket that is answered with a share partition and the first offset that its coordinator's log needs."""
    updates_per_snapshot: int = 500
    cold_ms: int = 300_000
    """The time after which an unchanged share partition gets a snapshot, so that the log before it can be deleted."""
    prune_ms: int = 300_000
