"""The records of a snapshot: replayed, they make an image equal to the one that they were written from.

The order is Kafka's: features with metadata.version first, brokers, controllers, topics each with its partitions,
configs, quotas, producer ids, ACLs, SCRAM credentials, delegation tokens. Within a kind Kafka follows its hash maps;
here the records are sorted, so that equal images give equal records.

An image that its metadata.version cannot express is an error. Eligible leader replicas are the exception, as in Kafka:
they are left out while their feature is off, because a change of the feature clears them anyway.
"""

from collections.abc import Iterable, Iterator

from ottla.metadata.image.errors import UnwritableImage
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import DIRECTORY_MIGRATING, Broker, Controller, Topic
from ottla.protocol.messages.records.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.metadata_versions import (
    CONTROLLER_REGISTRATION,
    CORDONED_LOG_DIRS,
    DELEGATION_TOKENS,
    DIRECTORY_ASSIGNMENT,
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM,
    ZK_MIGRATION,
    record_version,
)


def snapshot_records(image: Image) -> Iterator[object]:
    """Return the image's records. Raise UnwritableImage if its metadata.version cannot express all of it."""
    level = image.features.metadata_version
    if level not in METADATA_VERSIONS:
        raise UnwritableImage(f"the image has metadata.version {level}, which this release does not support")
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    for name in sorted(image.features.levels):
        yield FeatureLevelRecord(name=name, feature_level=image.features.levels[name])
    yield from _node_records(image, level)
    with_elr = image.features.level(ELR_VERSION) >= 1
    for topic_id in sorted(image.topics_by_id):
        yield from _topic_records(image.topics_by_id[topic_id], with_elr, level)
    yield from _setting_records(image)
    yield from _access_records(image, level)


def versioned_snapshot_records(image: Image) -> Iterator[tuple[object, int]]:
    """Return the image's records, each with the version to write it in."""
    level = image.features.metadata_version
    versions: dict[type, int] = {}
    for record in snapshot_records(image):
        kind = type(record)
        version = versions.get(kind)
        if version is None:
            version = versions[kind] = record_version(kind, level)
        yield record, version


def _check_level(level: int, needed: int, what: str) -> None:
    if level < needed:
        raise UnwritableImage(f"{what} cannot be written at metadata.version {level}")


def _node_records(image: Image, level: int) -> Iterator[object]:
    for broker_id in sorted(image.brokers):
        yield _broker_record(image.brokers[broker_id], level)
    if image.controllers:
        _check_level(level, CONTROLLER_REGISTRATION, "the registration of controllers")
        for controller_id in sorted(image.controllers):
            yield _controller_record(image.controllers[controller_id])


def _broker_record(broker: Broker, level: int) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs
    if broker.is_migrating_zk:
        _check_level(level, ZK_MIGRATION, "a broker's migration from ZooKeeper")
    if broker.log_dirs:
        _check_level(level, DIRECTORY_ASSIGNMENT, "the log directories of a broker")
    if cordoned is not None:
        _check_level(level, CORDONED_LOG_DIRS, "the cordoned log directories of a broker")
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
            )
            for name, endpoint in sorted(broker.endpoints.items())
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=supported.min, max_supported_version=supported.max)
            for name, supported in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _controller_record(controller: Controller) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
            )
            for name, endpoint in sorted(controller.endpoints.items())
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=supported.min, max_supported_version=supported.max)
            for name, supported in sorted(controller.features.items())
        ],
    )


def _topic_records(topic: Topic, with_elr: bool, level: int) -> Iterator[object]:
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for number, partition in enumerate(topic.partitions):
        record = PartitionRecord(
            partition_id=number,
            topic_id=topic.id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing),
            adding_replicas=list(partition.adding),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=partition.leader_recovery,
        )
        if with_elr:
            record.eligible_leader_replicas = list(partition.elr) or None
            record.last_known_elr = list(partition.last_known_elr) or None
        if level >= DIRECTORY_ASSIGNMENT:
            record.directories = list(partition.directories)
        elif any(directory != DIRECTORY_MIGRATING for directory in partition.directories):
            _check_level(level, DIRECTORY_ASSIGNMENT, "the directories of replicas")
        yield record


def _setting_records(image: Image) -> Iterator[object]:
    for kind, name in sorted(image.configs):
        for setting, value in sorted(image.config(kind, name).items()):
            yield ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=value)
    for entity in sorted(image.quotas, key=_quota_order):
        for key, limit in sorted(image.quotas[entity].items()):
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield ClientQuotaRecord(entity=parts, key=key, value=limit)
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)


def _quota_order(entity: Iterable[tuple[str, str | None]]) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def _access_records(image: Image, level: int) -> Iterator[object]:
    for acl_id in sorted(image.acls):
        acl = image.acls[acl_id]
        yield AccessControlEntryRecord(id=acl_id, **acl._asdict())
    if image.scram:
        _check_level(level, SCRAM, "SCRAM credentials")
        for user in sorted(image.scram):
            credential = image.scram[user]
            yield UserScramCredentialRecord(name=user.name, mechanism=user.mechanism, **credential._asdict())
    if image.tokens:
        _check_level(level, DELEGATION_TOKENS, "delegation tokens")
        for token_id in sorted(image.tokens):
            token = image.tokens[token_id]
            yield DelegationTokenRecord(**{**token._asdict(), "renewers": list(token.renewers)})
