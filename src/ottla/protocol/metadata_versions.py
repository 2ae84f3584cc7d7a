"""The levels of metadata.version: their names, and the version of each record that a level writes.

A level decides how records are written; it does not change an image. No 4.x release reads levels below 7 (3.3-IV3).
Kafka 4.3 knows level 31 (4.4-IV0), but not for production.
"""

from functools import cache
from typing import NamedTuple

from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELR_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"


class MetadataVersion(NamedTuple):
    """One level of metadata.version."""

    level: int
    name: str
    changes_records: bool
    """Whether records differ from those of the level before."""

    @property
    def release(self) -> str:
        return self.name.partition("-")[0]


_NAMES = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0"),
)
OLDEST = 7
LATEST = 30
"""The newest level for production."""

# The first level with each of these features.
ZK_MIGRATION = 8
SCRAM = 11
NO_EPOCH_BUMP_ON_ISR_SHRINK = 12
METADATA_TRANSACTIONS = 13
DELEGATION_TOKENS = 14
CONTROLLER_REGISTRATION = 15
DIRECTORY_ASSIGNMENT = 17
ELIGIBLE_LEADER_REPLICAS = 23
CORDONED_LOG_DIRS = 30

_CHANGES = {
    OLDEST, ZK_MIGRATION, SCRAM, METADATA_TRANSACTIONS, DELEGATION_TOKENS, CONTROLLER_REGISTRATION,
    DIRECTORY_ASSIGNMENT, ELIGIBLE_LEADER_REPLICAS, CORDONED_LOG_DIRS,
}  # fmt: skip
METADATA_VERSIONS: dict[int, MetadataVersion] = {
    level: MetadataVersion(level, name, level in _CHANGES) for level, name in enumerate(_NAMES, OLDEST)
}
"""All levels that can be replayed, by number."""

_RECORD_VERSIONS: dict[type, tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((OLDEST, 1), (ZK_MIGRATION, 2), (DIRECTORY_ASSIGNMENT, 3), (CORDONED_LOG_DIRS, 4)),
    PartitionRecord: ((OLDEST, 0), (DIRECTORY_ASSIGNMENT, 1), (ELIGIBLE_LEADER_REPLICAS, 2)),
    PartitionChangeRecord: ((OLDEST, 0), (DIRECTORY_ASSIGNMENT, 1), (ELIGIBLE_LEADER_REPLICAS, 2)),
    BrokerRegistrationChangeRecord: ((OLDEST, 1), (DIRECTORY_ASSIGNMENT, 2), (CORDONED_LOG_DIRS, 3)),
}
"""The first level of each version, for records with more than one."""

# Kafka writes a registration change in the lowest version that has the field it sets.
_CHANGE_FIELDS = (("cordoned_log_dirs", 3), ("log_dirs", 2), ("in_controlled_shutdown", 1))


def record_version(kind: type, metadata_version: int) -> int:
    """Return the highest version of a record that may be written at this level."""
    return _versions_at(metadata_version).get(kind, 0)


@cache
def _versions_at(metadata_version: int) -> dict[type, int]:
    """Return the versions at one level of all records with more than one version."""
    return {
        kind: max((version for level, version in versions if level <= metadata_version), default=0)
        for kind, versions in _RECORD_VERSIONS.items()
    }


def version_to_write(record: object, metadata_version: int) -> int:
    """Return the version in which Kafka writes this particular record at this level."""
    if isinstance(record, BrokerRegistrationChangeRecord):
        for field, version in _CHANGE_FIELDS:
            if getattr(record, field):
                return version
        return 3 if record.cordoned_log_dirs is not None else 0
    return record_version(type(record), metadata_version)
