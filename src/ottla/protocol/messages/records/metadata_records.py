"""The records of the metadata log, by their type."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Float64, Int8, Int16, Int32, Int64, UInt16, Uuid


@struct
class BrokerEndpoint:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)
    security_protocol: Int16 = since("0+", default=0)


@struct
class BrokerFeature:
    name: str = since("0+", default="")
    min_supported_version: Int16 = since("0+", default=0)
    max_supported_version: Int16 = since("0+", default=0)


@stored(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker registered, with its endpoints, features and log directories."""

    broker_id: Int32 = since("0+", default=0)
    is_migrating_zk_broker: bool = since("2+", default=False)
    incarnation_id: Uuid = since("0+", default=ZERO_UUID)
    broker_epoch: Int64 = since("0+", default=0)
    end_points: list[BrokerEndpoint] = since("0+", factory=list)
    features: list[BrokerFeature] = since("0+", factory=list)
    rack: str | None = since("0+", default="")
    fenced: bool = since("0+", default=True)
    in_controlled_shutdown: bool = since("1+", default=False)
    log_dirs: list[Uuid] = since("3+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = since("4+", default=None, tag=1)


@stored(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker was removed from the cluster."""

    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=0)


@stored(key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic was created, with its name and id."""

    name: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)


@stored(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition was created, with its replicas, ISR and leader."""

    partition_id: Int32 = since("0+", default=-1)
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    replicas: list[Int32] = since("0+", factory=list)
    isr: list[Int32] = since("0+", factory=list)
    removing_replicas: list[Int32] = since("0+", factory=list)
    adding_replicas: list[Int32] = since("0+", factory=list)
    leader: Int32 = since("0+", default=-1)
    leader_epoch: Int32 = since("0+", default=-1)
    partition_epoch: Int32 = since("0+", default=-1)
    directories: list[Uuid] = since("1+", factory=list)
    leader_recovery_state: Int8 = since("0+", default=0, tag=0)
    eligible_leader_replicas: list[Int32] | None = since("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = since("2+", default=None, tag=2)


@stored(key=4, versions="0", flexible="0+")
class ConfigRecord:
    """A setting of a resource was set, or removed when the value is null."""

    resource_type: Int8 = since("0+", default=0)
    resource_name: str = since("0+", default="")
    name: str = since("0+", default="")
    value: str | None = since("0+", default="")


@stored(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """A partition changed: its ISR, leader, replicas or directories. Null fields did not change."""

    partition_id: Int32 = since("0+", default=-1)
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    isr: list[Int32] | None = since("0+", default=None, tag=0)
    leader: Int32 = since("0+", default=-2, tag=1)
    replicas: list[Int32] | None = since("0+", default=None, tag=2)
    removing_replicas: list[Int32] | None = since("0+", default=None, tag=3)
    adding_replicas: list[Int32] | None = since("0+", default=None, tag=4)
    leader_recovery_state: Int8 = since("0+", default=-1, tag=5)
    eligible_leader_replicas: list[Int32] | None = since("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = since("2+", default=None, tag=7)
    directories: list[Uuid] | None = since("1+", default=None, tag=8)


@stored(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker was fenced; superseded by BrokerRegistrationChangeRecord."""

    id: Int32 = since("0+", default=0)
    epoch: Int64 = since("0+", default=0)


@stored(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker was unfenced; superseded by BrokerRegistrationChangeRecord."""

    id: Int32 = since("0+", default=0)
    epoch: Int64 = since("0+", default=0)


@stored(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: Uuid = since("0+", default=ZERO_UUID)


@stored(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token was created or renewed."""

    owner: str = since("0+", default="")
    requester: str = since("0+", default="")
    renewers: list[str] = since("0+", factory=list)
    issue_timestamp: Int64 = since("0+", default=0)
    max_timestamp: Int64 = since("0+", default=0)
    expiration_timestamp: Int64 = since("0+", default=0)
    token_id: str = since("0+", default="")


@stored(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The SCRAM credential of a user was set."""

    name: str = since("0+", default="")
    mechanism: Int8 = since("0+", default=0)
    salt: bytes = since("0+", default=b"")
    stored_key: bytes = since("0+", default=b"")
    server_key: bytes = since("0+", default=b"")
    iterations: Int32 = since("0+", default=0)


@stored(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """The level of a feature was finalized."""

    name: str = since("0+", default="")
    feature_level: Int16 = since("0+", default=0)


@struct
class EntityData:
    entity_type: str = since("0+", default="")
    entity_name: str | None = since("0+", default="")


@stored(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of a user, client id or address was set or removed."""

    entity: list[EntityData] = since("0+", factory=list)
    key: str = since("0+", default="")
    value: Float64 = since("0+", default=0.0)
    remove: bool = since("0+", default=False)


@stored(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids was allocated to a broker."""

    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=-1)
    next_producer_id: Int64 = since("0+", default=0)


@stored(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A broker was fenced or unfenced, is shutting down, or its log directories changed."""

    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=0)
    fenced: Int8 = since("0+", default=0, tag=0)
    in_controlled_shutdown: Int8 = since("1+", default=0, tag=1)
    log_dirs: list[Uuid] = since("2+", factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = since("3+", default=None, tag=3)


@stored(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An access rule was added."""

    id: Uuid = since("0+", default=ZERO_UUID)
    resource_type: Int8 = since("0+", default=0)
    resource_name: str = since("0+", default="")
    pattern_type: Int8 = since("0+", default=0)
    principal: str = since("0+", default="")
    host: str = since("0+", default="")
    operation: Int8 = since("0+", default=0)
    permission_type: Int8 = since("0+", default=0)


@stored(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An access rule was removed."""

    id: Uuid = since("0+", default=ZERO_UUID)


@stored(key=20, versions="0", flexible="0+")
class NoOpRecord:
    """No change; proves that the active controller can commit records."""


@stored(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The state of the migration from ZooKeeper."""

    zk_migration_state: Int8 = since("0+", default=0)


@stored(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """The SCRAM credential of a user was removed."""

    name: str = since("0+", default="")
    mechanism: Int8 = since("0+", default=0)


@stored(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """A metadata transaction began; the records after this one apply only if it ends."""

    name: str | None = since("0+", default=None, tag=0)


@stored(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    """A metadata transaction ended; its records apply."""


@stored(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    """A metadata transaction was aborted; its records are dropped."""

    reason: str | None = since("0+", default=None, tag=0)


@stored(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: str = since("0+", default="")


@struct
class ControllerEndpoint:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)
    security_protocol: Int16 = since("0+", default=0)


@struct
class ControllerFeature:
    name: str = since("0+", default="")
    min_supported_version: Int16 = since("0+", default=0)
    max_supported_version: Int16 = since("0+", default=0)


@stored(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller registered, with its endpoints and features."""

    controller_id: Int32 = since("0+", default=0)
    incarnation_id: Uuid = since("0+", default=ZERO_UUID)
    zk_migration_ready: bool = since("0+", default=False)
    end_points: list[ControllerEndpoint] = since("0+", factory=list)
    features: list[ControllerFeature] = since("0+", factory=list)


@stored(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all topics, were cleared."""

    topic_name: str = since("0+", default="")


METADATA_RECORDS: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""The class of each record type."""
