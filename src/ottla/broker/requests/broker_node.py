"""What the handlers of a broker act on. The server puts it together; handlers never reach beyond it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.requests.call import Call
from ottla.broker.telemetry.instances import Instances
from ottla.broker.telemetry.pushed import PushedMetrics
from ottla.coordinators.groups.consumer.assignor import Assignor
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.producer_ids import ProducerIds
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.share.groups import ShareGroups
from ottla.coordinators.runtime.share.sharing import Sharing
from ottla.coordinators.runtime.transactions.transactions import Transactions
from ottla.metadata.image.image import Image
from ottla.protocol.errors import NotController
from ottla.protocol.messages.apis import Api
from ottla.protocol.messages.rpc.create_topics import CreatableTopic
from ottla.replication.directory_moves import Moves
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Completions, Expirations, Timer
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.unavailable_leaders import UnavailableLeaders
from ottla.storage.directories.disk_space import Space, space_of


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
    departures: UnavailableLeaders
    """Brokers that are gone, or seem to be."""
    producer_ids: ProducerIds
    groups: Shards[GroupsState]
    """The group coordinators here."""
    transactions: Transactions
    """The transaction coordinators here, and this broker's part in transactions."""
    sharing: Sharing
    """The share coordinators here, and what this broker leads of share partitions."""
    share_groups: ShareGroups
    """What takes both coordinators of a share group."""
    completions: Completions
    timer: Timer
    expirations: Expirations = field(default_factory=Expirations)
    now_ms: Callable[[], int]
    setting: Callable[[str], Any]
    """A setting of this broker as it is now, read into its type, by Kafka's name."""
    new_member_id: Callable[[], str]
    """The random part of a classic group member's id."""
    random: Random
    supported_features: Mapping[str, tuple[int, int]]
    served: Sequence[Api] = ()
    """The APIs that clients are told of."""
    unstable_versions: bool = False
    levels_changed: Callable[[], None] = lambda: None
    """Called when loggers were given other levels, for those who do more than log."""
    fetch_max_bytes: int = 57_671_680
    max_described_partitions: int = 2000
    space_of: Callable[[str], Space] = space_of
    create_missing_topics: Callable[[Call[BrokerNode], Sequence[str]], None] | None = None
    """Asks the controller for topics that a client named, in its name; None where that is switched off."""
    ask_controller: Callable[[Any], Awaitable[Any]]
    """The answer of the active controller, wherever it is, to a request of this broker's own."""
    decide: Callable[[Call[BrokerNode], Any], Awaitable[Any]] = _no_controller
    """Forwards a client's request to the active controller, and returns its response."""
    create_internal_topic: Callable[[str], None] = _nothing
    """Asks the controller for a topic that a coordinator of this broker needs; it may be on its way already."""
    create_streams_topics: Callable[[Call[BrokerNode], Sequence[CreatableTopic], int, int], Mapping[str, str]] = (
        lambda *_: {}
    )
    """Asks for internal topics of a streams group in a member's name; returns why some failed within a time before now
    (both in ms)."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The broker's configuration file."""
    check_broker_settings: Callable[[str, Mapping[str, str]], None] = _nothing
    """Raises InvalidRequest unless this broker could run with settings set on it (by its id) or on all ("")."""
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    """Those of consumer groups that the operator has brought along, by what the setting has for them."""
    telemetry: Instances = field(default_factory=lambda: Instances(lambda: uuid4().bytes))
    """The clients that push metrics."""
    pushed: PushedMetrics = field(default_factory=lambda: PushedMetrics(0))
    """What they pushed."""
    authorizer: Authorizer | None = None
    """Decides what clients may do; without one they may do everything."""
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
    """Calls a function that takes long in a thread, and waits for what it returns."""
    leader_throttle: ReplicationThrottle | None = None
    """What limits the fetches of followers that are not in sync."""
    reads_by_rack: bool = False
    """Whether consumers are sent to replicas in their racks."""
    kraft_version: Callable[[], int] = lambda: 0
    """The version of the quorum's own records."""
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
    """API → versions that the active controller serves, if it is another node's and known."""

    @property
    def image(self) -> Image:
        """The cluster's metadata as this broker knows them."""
        return self.partitions.image
