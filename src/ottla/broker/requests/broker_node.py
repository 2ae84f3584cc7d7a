"""The services of a broker that its handlers use. The node wires them; handlers use nothing else of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.requests.call import Call
from ottla.broker.telemetry.client_instances import ClientInstances
from ottla.broker.telemetry.pushed_metrics import PushedMetrics
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
from ottla.replication.directory_moves import DirectoryMoves
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Completions, Expirations, Timer
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.unavailable_leaders import UnavailableLeaders
from ottla.storage.directories.disk_space import DiskSpace, disk_space_of


def _nothing(*_: object) -> None:
    """Do nothing: the default of a service that a broker lacks."""


async def _no_controller(*_: object) -> Any:
    raise NotController("this broker has no connection to a controller")


@dataclass(slots=True, kw_only=True)
class BrokerNode:
    """A broker's services."""

    node_id: int
    cluster_id: str
    partitions: Partitions
    sessions: SessionCache
    moves: DirectoryMoves
    unavailable_leaders: UnavailableLeaders
    """Brokers that left the cluster or seem to have failed."""
    producer_ids: ProducerIds
    groups: Shards[GroupsState]
    """The group coordinators of this broker."""
    transactions: Transactions
    """The transaction coordinators of this broker, and its part in other transactions."""
    sharing: Sharing
    """The share coordinators of this broker, and the share partitions that it leads."""
    share_groups: ShareGroups
    """Operations on share groups that need both of their coordinators."""
    completions: Completions
    timer: Timer
    expirations: Expirations = field(default_factory=Expirations)
    now_ms: Callable[[], int]
    setting: Callable[[str], Any]
    """Returns the current value of a setting, parsed into its type, by Kafka's name."""
    new_member_id: Callable[[], str]
    """Returns the random part of a classic group member's id."""
    random: Random
    supported_features: Mapping[str, tuple[int, int]]
    advertised: Sequence[Api] = ()
    """The APIs that ApiVersions advertises."""
    unstable_versions: bool = False
    levels_changed: Callable[[], None] = lambda: None
    """Called when log levels changed, for services that depend on them."""
    fetch_max_bytes: int = 57_671_680
    max_described_partitions: int = 2000
    space_of: Callable[[str], DiskSpace] = disk_space_of
    create_missing_topics: Callable[[Call[BrokerNode], Sequence[str]], None] | None = None
    """Asks the controller, in the client's name, for topics that a request names; None if automatic creation is off."""
    ask_controller: Callable[[Any], Awaitable[Any]]
    """Returns the active controller's response to a request of this broker's own."""
    decide: Callable[[Call[BrokerNode], Any], Awaitable[Any]] = _no_controller
    """Forwards a client's request to the active controller, and returns its response."""
    create_internal_topic: Callable[[str], None] = _nothing
    """Asks the controller for a topic that a coordinator of this broker needs."""
    create_streams_topics: Callable[[Call[BrokerNode], Sequence[CreatableTopic], int, int], Mapping[str, str]] = (
        lambda *_: {}
    )
    """Asks the controller, in a member's name, for internal topics of a streams group. Takes how long a failure is
    remembered and the time, both in milliseconds; returns why some topics failed within that time."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The broker's configuration file."""
    check_broker_settings: Callable[[str, Mapping[str, str]], None] = _nothing
    """Raises InvalidRequest if this broker could not run with settings of one broker (by id) or of all brokers ("")."""
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    """The operator's assignors for consumer groups, by their names in the setting."""
    telemetry: ClientInstances = field(default_factory=lambda: ClientInstances(lambda: uuid4().bytes))
    """The clients that push metrics."""
    pushed: PushedMetrics = field(default_factory=lambda: PushedMetrics(0))
    """The metrics that clients pushed."""
    authorizer: Authorizer | None = None
    """Decides what clients may do; None if they may do everything."""
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
    """Runs a slow function in a thread, and returns its result."""
    leader_throttle: ReplicationThrottle | None = None
    """Limits the fetches of followers that are not in sync."""
    reads_by_rack: bool = False
    """Whether consumers are directed to replicas in their racks."""
    kraft_version: Callable[[], int] = lambda: 0
    """The version of the quorum's own records."""
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
    """Returns API → versions of the active controller; None if it is on this node or unknown."""

    @property
    def image(self) -> Image:
        """The metadata of the cluster, as far as this broker has read it."""
        return self.partitions.image
