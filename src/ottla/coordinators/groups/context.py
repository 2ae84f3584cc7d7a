"""The inputs of a decision about groups beside the request: the client, the time, the metadata, the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.metadata.image.image import Image

if TYPE_CHECKING:
    from ottla.coordinators.groups.consumer.assignor import Assignor


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The inputs of one decision."""

    now_ms: int
    image: Image
    settings: Callable[[str], Any]
    """Returns the current value of a broker setting, parsed into its type, by Kafka's name."""
    new_id: Callable[[], str]
    """Returns a new random UUID as text."""
    client_id: str = ""
    client_host: str = ""
    """The client's address with a leading slash, as Kafka writes it."""
    version: int = 0
    """The version of the request."""
    visible: Callable[[Collection[str]], Collection[str] | None] = field(default=lambda names: names)
    """Returns the topics that the client may describe, of those given; None if that is not decided yet."""
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    """The operator's assignors, by the entry of the setting that names them."""
