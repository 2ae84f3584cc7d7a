"""What the handlers of a broker act on. The server puts it together; handlers never reach beyond it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.api.call import Call
from ottla.errors import NotController
from ottla.image.image import Image
from ottla.log.space import Space, space_of
from ottla.messages.apis import Api
from ottla.replica.moves import Moves
from ottla.replica.partitions import Partitions
from ottla.replica.producer_ids import ProducerIds
from ottla.replica.sessions import SessionCache
from ottla.replica.waiting import Completions, Timer


def _nothing(*_: object) -> None:
    """What a broker does that lacks a service."""


async def _no_controller(*_: object) -> Any:
    raise NotController("this broker knows no controller")


@dataclass(slots=True, kw_only=True)
class BrokerNode:
    """A broker's services."""

    node_id: int
    cluster_id: str
    partitions: Partitions
    sessions: SessionCache
    moves: Moves
    producer_ids: ProducerIds
    completions: Completions
    timer: Timer
    now_ms: Callable[[], int]
    random: Random
    supported_features: Mapping[str, tuple[int, int]]
    served: Sequence[Api] = ()
    """The APIs that clients are told of."""
    unstable_versions: bool = False
    fetch_max_bytes: int = 57_671_680
    max_described_partitions: int = 2000
    space_of: Callable[[str], Space] = space_of
    create_missing_topic: Callable[[Call[BrokerNode], str], None] | None = None
    """Asks the controller for a topic that a client named; None where that is switched off."""
    ask_controller: Callable[[Any], Awaitable[Any]]
    """The answer of the active controller, wherever it is, to a request of this broker's own."""
    forward: Callable[[Call[BrokerNode], Any], Awaitable[Any]] = _no_controller
    """The answer of the active controller to a client's request, which is handed on to it."""
    create_internal_topic: Callable[[str], None] = _nothing
    """Asks the controller for a topic that a coordinator of this broker needs; it may be on its way already."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The broker's configuration file."""
    check_broker_settings: Callable[[str, Mapping[str, str]], None] = _nothing
    """Raises InvalidRequest unless this broker could run with settings set on it (by its id) or on all ("")."""
    kraft_version: Callable[[], int] = lambda: 0
    """The version of the quorum's own records."""

    @property
    def image(self) -> Image:
        """The cluster's metadata as this broker knows them."""
        return self.partitions.image
