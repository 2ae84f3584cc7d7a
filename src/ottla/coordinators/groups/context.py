"""What a decision about groups needs beside the request: who asks, the time, the cluster, the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.metadata.image.image import Image

if TYPE_CHECKING:
    from ottla.coordinators.groups.consumer.assignor import Assignor


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of one decision."""

    now_ms: int
    image: Image
    settings: Callable[[str], Any]
    """A setting of this broker as it is now, by Kafka's name, already read into its type."""
    new_id: Callable[[], str]
    """A new random UUID in its usual text form."""
    client_id: str = ""
    client_host: str = ""
    """The client's address as Kafka writes it, with a leading slash."""
    version: int = 0
    """Of the request."""
    visible: Callable[[Collection[str]], Collection[str] | None] = field(default=lambda names: names)
    """Those of some topics that the client may know of."""
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    """What the operator has brought along, by what the setting has for it."""
