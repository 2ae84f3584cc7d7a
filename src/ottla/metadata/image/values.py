"""The values of an image: brokers, topics, partitions and the rest, all immutable.

Topics and partitions are named tuples because there are many of them. Lists of a record become tuples. Maps are
`immutables.Map`: an update costs O(log n) and leaves the old map unchanged. Their order is arbitrary, and for text and
bytes differs between processes, so code that must be deterministic sorts the keys.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ottla.protocol.features import FeatureRange
from ottla.protocol.wire.types import ZERO_UUID

NO_ENTRIES: Map[Any, Any] = Map()
"""The initial value of every map."""
NO_LEADER = -1

DIRECTORY_MIGRATING = ZERO_UUID
"""The replica is older than directory assignment; the broker has not reported its directory yet."""
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
"""The broker has not chosen a directory for the replica yet."""
DIRECTORY_LOST = bytes(15) + b"\x02"
"""The replica was in a directory that failed."""


class ResourceType(IntEnum):
    """The type of resource that a config is set on."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecovery(IntEnum):
    """Whether the leader was elected from outside the ISR and has not recovered yet."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """The endpoint of one listener of a node."""

    host: str
    port: int
    security_protocol: int


class Partition(NamedTuple):
    """The state of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    """The log directory of each replica, in the order of `replicas`."""
    leader_recovery: int
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, broker: int) -> bytes | None:
        """Return the log directory of a broker's replica, or None if it is no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker:
                return directory
        return None


class Topic(NamedTuple):
    name: str
    id: bytes
    partitions: tuple[Partition, ...] = ()
    """In the order of partition ids."""

    def partition(self, number: int) -> Partition | None:
        return self.partitions[number] if 0 <= number < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Map[str, Endpoint]
    features: Map[str, FeatureRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    """Sorted as Kafka sorts UUIDs: as two signed numbers."""
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """Directories that get no new replicas (KIP-1066); None if the broker has not reported any."""
    is_migrating_zk: bool = False


@dataclass(frozen=True, slots=True)
class Controller:
    id: int
    incarnation_id: bytes
    endpoints: Map[str, Endpoint]
    features: Map[str, FeatureRange]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class Features:
    """The finalized features. metadata.version is separate because it decides how records are written."""

    metadata_version: int = 0
    """The level; 0 before the first record of it."""
    levels: Map[str, int] = NO_ENTRIES

    def level(self, feature: str) -> int:
        """Return the finalized level of another feature; 0 means that it is disabled."""
        return self.levels.get(feature, 0)


class ConfigResource(NamedTuple):
    """The resource that configs are set on. An empty name is the cluster-wide default of the type."""

    type: int
    name: str


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: sorted pairs of a type ("user", "client-id" or "ip") and a name; None is the default."""


def quota_entity(parts: dict[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


class Acl(NamedTuple):
    """An access control entry."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramUser(NamedTuple):
    mechanism: int
    name: str


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential(hidden)"


class DelegationToken(NamedTuple):
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int

    def may_be_changed_by(self, principal: str) -> bool:
        """Whether a principal is the owner or a renewer. The requester of a token for another owner is neither."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether a principal sees the token without an ACL."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def __repr__(self) -> str:
        return "DelegationToken(hidden)"
