"""A delta: applies records to an image, one by one, and gives the next image.

    delta = Delta(image)
    for record in records:
        delta.apply(record)
    image = delta.finish(offset=..., epoch=..., timestamp=...)
    for change in delta.changes.brokers: ...

Records mean the same as in Kafka's replay, with one exception: the result does not depend on where one delta ends and
the next one starts. In Kafka, the configs of a topic that is created and deleted within one delta survive, and removing
an ACL or a topic twice is an error only across deltas. Here the configs go with the topic, and it is always an error.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from immutables import Map, MapMutation

from ottla.metadata.image.changes import ChangedKeys, Changes
from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import Image
from ottla.metadata.image.placement import Placement
from ottla.metadata.image.registration_records import changed_broker, new_broker, new_controller
from ottla.metadata.image.topics_delta import TopicsDelta
from ottla.metadata.image.values import (
    Acl,
    Broker,
    ConfigResource,
    DelegationToken,
    ResourceType,
    ScramCredential,
    ScramUser,
    quota_entity,
)
from ottla.protocol.messages.records import metadata_records as records
from ottla.protocol.metadata_versions import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS

K = TypeVar("K")
V = TypeVar("V")


class _MapDelta(Generic[K, V]):
    """The changes of a map. An unchanged map stays the same object."""

    __slots__ = ("_base", "_changing", "changed_keys")

    def __init__(self, base: Map[K, V]) -> None:
        self._base = base
        self._changing: MapMutation[K, V] | None = None
        self.changed_keys: dict[K, None] = {}

    def get(self, key: K) -> V | None:
        return self._base.get(key) if self._changing is None else self._changing.get(key)

    def put(self, key: K, value: V) -> None:
        if self._changing is None:
            self._changing = self._base.mutate()
        self._changing[key] = value
        self.changed_keys[key] = None

    def remove(self, key: K) -> None:
        if self.get(key) is None:
            return
        if self._changing is None:
            self._changing = self._base.mutate()
        del self._changing[key]
        self.changed_keys[key] = None

    def finish(self) -> Map[K, V]:
        return self._base if self._changing is None else self._changing.finish()


class Delta:
    """Changes on top of an image. `keeps_config` returns whether this node keeps a config; others are ignored."""

    def __init__(self, image: Image, *, keeps_config: Callable[[int, str], bool] | None = None) -> None:
        self.image = image
        self._keeps_config = keeps_config
        self._metadata_version = image.features.metadata_version
        self._next_producer_id = image.next_producer_id
        self._levels = _MapDelta(image.features.levels)
        self._brokers = _MapDelta(image.brokers)
        self._controllers = _MapDelta(image.controllers)
        self._topics = TopicsDelta(image)
        self._configs = _MapDelta(image.configs)
        self._quotas = _MapDelta(image.quotas)
        self._acls = _MapDelta(image.acls)
        self._scram = _MapDelta(image.scram)
        self._tokens = _MapDelta(image.tokens)
        self._finished: Image | None = None

    def apply(self, record: object) -> None:
        """Apply one record. Raise ReplayError if it does not fit the records before it."""
        apply_record = _APPLY.get(type(record))
        if apply_record is None:
            raise ReplayError(f"{type(record).__name__} cannot be applied to an image")
        assert self._finished is None, "a finished delta accepts no more records"
        apply_record(self, record)

    def finish(self, *, offset: int, epoch: int, timestamp: int) -> Image:
        """Return the next image; the arguments are those of its last record."""
        assert self._finished is None, "a delta is finished once"
        old = self.image
        features = old.features
        levels = self._levels.finish()
        if levels is not features.levels or self._metadata_version != features.metadata_version:
            features = replace(features, metadata_version=self._metadata_version, levels=levels)
        brokers = self._brokers.finish()
        topics, topics_by_id = self._topics.finish()
        placement = old.placement if old.has_placement else None
        new = self._finished = Image(
            offset=offset,
            epoch=epoch,
            timestamp=timestamp,
            features=features,
            brokers=brokers,
            controllers=self._controllers.finish(),
            topics=topics,
            topics_by_id=topics_by_id,
            configs=self._configs.finish(),
            quotas=self._quotas.finish(),
            next_producer_id=self._next_producer_id,
            acls=self._acls.finish(),
            scram=self._scram.finish(),
            tokens=self._tokens.finish(),
            _placement=placement if topics is old.topics else None,
            # Built after the records are committed and answered, because it takes long for many partitions.
            _placement_source=None
            if placement is None or topics is old.topics
            else partial(self._next_placement, placement),
            _alive=old._alive if brokers is old.brokers else None,
        )
        return new

    def _next_placement(self, placement: Placement) -> Placement:
        """Return the placement of the finished image."""
        return placement.apply(self.changes.partitions)

    @cached_property
    def changes(self) -> Changes:
        """The changes of the finished delta."""
        assert self._finished is not None, "only a finished delta has changes"
        changed_keys = ChangedKeys(
            brokers=self._brokers.changed_keys,
            controllers=self._controllers.changed_keys,
            topics=self._topics.changed_keys(),
            configs=self._configs.changed_keys,
            quotas=self._quotas.changed_keys,
            acls=self._acls.changed_keys,
            scram=self._scram.changed_keys,
            tokens=self._tokens.changed_keys,
        )
        return Changes(self.image, self._finished, changed_keys)

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self._brokers.put(record.broker_id, new_broker(record))

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._brokers.remove(record.broker_id)

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._put_broker(replace(self._check_broker_epoch(record.id, record.epoch), fenced=True))

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._put_broker(replace(self._check_broker_epoch(record.id, record.epoch), fenced=False))

    def _change_broker(self, record: records.BrokerRegistrationChangeRecord) -> None:
        self._put_broker(changed_broker(self._check_broker_epoch(record.broker_id, record.broker_epoch), record))

    def _put_broker(self, broker: Broker) -> None:
        if broker != self._brokers.get(broker.id):
            self._brokers.put(broker.id, broker)

    def _check_broker_epoch(self, broker_id: int, epoch: int) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"a record changes broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"a record changes broker {broker_id} at epoch {epoch}, but its epoch is {broker.epoch}")
        return broker

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._controllers.put(record.controller_id, new_controller(record))

    def _create_topic(self, record: records.TopicRecord) -> None:
        self._topics.create(record)

    def _add_partition(self, record: records.PartitionRecord) -> None:
        self._topics.add_partition(record)

    def _change_partition(self, record: records.PartitionChangeRecord) -> None:
        self._topics.change_partition(record)

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        self._topics.clear_elr(record)

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._topics.remove(record)
        self._configs.remove(ConfigResource(ResourceType.TOPIC, name))

    def _set_config(self, record: records.ConfigRecord) -> None:
        if self._keeps_config is not None and not self._keeps_config(record.resource_type, record.name):
            return
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings: Map[str, str] = self._configs.get(resource) or Map()
        if record.value is not None:
            self._configs.put(resource, settings.set(record.name, record.value))
        elif record.name in settings:
            _put_unless_empty(self._configs, resource, settings.delete(record.name))

    def _set_quota(self, record: records.ClientQuotaRecord) -> None:
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        quotas: Map[str, float] = self._quotas.get(entity) or Map()
        if not record.remove:
            self._quotas.put(entity, quotas.set(record.key, record.value))
        elif record.key in quotas:
            _put_unless_empty(self._quotas, entity, quotas.delete(record.key))

    def _set_next_producer_id(self, record: records.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _set_feature(self, record: records.FeatureLevelRecord) -> None:
        level = record.feature_level
        if record.name == METADATA_VERSION:
            if level not in METADATA_VERSIONS:
                raise ReplayError(
                    f"metadata.version {level} is not supported; this release supports {min(METADATA_VERSIONS)}"
                    f" to {max(METADATA_VERSIONS)}"
                )
            self._metadata_version = level
        elif record.name == KRAFT_VERSION:
            return  # it is in force by control records of the quorum
        elif level == 0:
            self._levels.remove(record.name)
        else:
            self._levels.put(record.name, level)

    def _add_acl(self, record: records.AccessControlEntryRecord) -> None:
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._acls.put(record.id, acl)

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        if self._acls.get(record.id) is None:
            raise ReplayError(f"no ACL with id {record.id.hex()}")
        self._acls.remove(record.id)

    def _set_scram(self, record: records.UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._scram.put(ScramUser(record.mechanism, record.name), credential)

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._scram.remove(ScramUser(record.mechanism, record.name))

    def _set_token(self, record: records.DelegationTokenRecord) -> None:
        token = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )
        self._tokens.put(record.token_id, token)

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        self._tokens.remove(record.token_id)

    def _ignore(self, record: object) -> None:
        """Ignore a NoOpRecord, or the state of a ZooKeeper migration, which Kafka 4 no longer has."""


def _put_unless_empty(map_delta: _MapDelta[K, Map[str, V]], key: K, values: Map[str, V]) -> None:
    if values:
        map_delta.put(key, values)
    else:
        map_delta.remove(key)


_APPLY: dict[type, Callable[[Delta, Any], None]] = {
    records.RegisterBrokerRecord: Delta._register_broker,
    records.UnregisterBrokerRecord: Delta._unregister_broker,
    records.TopicRecord: Delta._create_topic,
    records.PartitionRecord: Delta._add_partition,
    records.ConfigRecord: Delta._set_config,
    records.PartitionChangeRecord: Delta._change_partition,
    records.FenceBrokerRecord: Delta._fence_broker,
    records.UnfenceBrokerRecord: Delta._unfence_broker,
    records.RemoveTopicRecord: Delta._remove_topic,
    records.DelegationTokenRecord: Delta._set_token,
    records.UserScramCredentialRecord: Delta._set_scram,
    records.FeatureLevelRecord: Delta._set_feature,
    records.ClientQuotaRecord: Delta._set_quota,
    records.ProducerIdsRecord: Delta._set_next_producer_id,
    records.BrokerRegistrationChangeRecord: Delta._change_broker,
    records.AccessControlEntryRecord: Delta._add_acl,
    records.RemoveAccessControlEntryRecord: Delta._remove_acl,
    records.NoOpRecord: Delta._ignore,
    records.ZkMigrationStateRecord: Delta._ignore,
    records.RemoveUserScramCredentialRecord: Delta._remove_scram,
    records.RemoveDelegationTokenRecord: Delta._remove_token,
    records.RegisterControllerRecord: Delta._register_controller,
    records.ClearElrRecord: Delta._clear_elr,
}
"""All records but those of metadata transactions, which `MetadataLoader` handles."""
