"""What an image holds: brokers, topics, partitions and the rest, as immutable values.

Topics and partitions are named tuples because there are many; all that is a list in a record is a tuple here. Maps are
`immutables.Map`: an update is O(log n) and leaves the old one as it was. Their order means nothing, and differs from
process to process for text and bytes: whoever must be deterministic sorts.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ottla.protocol.features import FeatureRange
from ottla.protocol.wire.types import ZERO_UUID

NO_ENTRIES: Map[Any, Any] = Map()
"""What every map is at first."""
NO_LEADER = -1

DIRECTORY_MIGRATING = ZERO_UUID
"""The replica is from before directories were told; the broker has yet to say where it is."""
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
"""The broker has not yet chosen a directory for the replica."""
DIRECTORY_LOST = bytes(15) + b"\x02"
"""The replica was in a directory that failed."""


class ResourceType(IntEnum):
    """What a setting is set on."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecovery(IntEnum):
    """Whether a partition's leader was elected from outside the ISR and has not yet settled what it lost."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """Where one listener of a node is reached."""

    host: str
    port: int
    security_protocol: int


class Partition(NamedTuple):
    """A partition as the controller last left it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    """The log directory of each replica, in the replicas' order."""
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
        """The log directory of a broker's replica; None if it has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker:
                return directory
        return None


class Topic(NamedTuple):
    name: str
    id: bytes
    partitions: tuple[Partition, ...] = ()
    """By partition id."""

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
    """In the order in which Kafka compares UUIDs: as two signed numbers."""
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """None if the broker never told; new replicas are not put there (KIP-1066)."""
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
    """The finalized features; metadata.version apart, as it decides how records are written."""

    metadata_version: int = 0
    """The level; 0 before the first record said it."""
    levels: Map[str, int] = NO_ENTRIES

    def level(self, feature: str) -> int:
        """The finalized level of any other feature; 0 means that it is off."""
        return self.levels.get(feature, 0)


class ConfigResource(NamedTuple):
    """What settings hang on; an empty name is the cluster-wide default of its type."""

    type: int
    name: str


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) for some of "user", "client-id" and "ip", sorted; no name is the default's."""


def quota_entity(parts: dict[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


class Acl(NamedTuple):
    """One access rule."""

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
        """Whether a principal owns it or may renew it; who requested it for somebody else may not."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether a principal is told of it, whatever rules there are."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def __repr__(self) -> str:
        return "DelegationToken(hidden)"
