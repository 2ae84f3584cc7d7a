"""What a decision about groups needs beside the request: who asks, the time, the cluster, the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from ottla.image.image import Image


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
    visible: Callable[[Collection[str]], Collection[str]] = field(default=lambda names: names)
    """Those of some topics that the client may know of."""
