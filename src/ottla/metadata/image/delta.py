"""A delta: the records that lead from one image to the next, applied one by one.

    delta = Delta(image)
    for record in records:
        delta.apply(record)
    image = delta.finish(offset=..., epoch=..., timestamp=...)
    for change in delta.changes.brokers: ...

Applying means what Kafka's own replay means, with one exception: here the outcome never depends on where one delta ends
and the next begins. (In Kafka, settings of a topic that is made and deleted within one delta outlive it, and removing a
rule or a topic twice is an error only across deltas; here they go, and it always is.)
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from immutables import Map, MapMutation

from ottla.metadata.image.changes import Changes, Touched
from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import Image
from ottla.metadata.image.nodes import changed_broker, new_broker, new_controller
from ottla.metadata.image.placement import Placement
from ottla.metadata.image.topics import TopicsDraft
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


class _Draft(Generic[K, V]):
    """A map under change, which stays the same object until something does change."""

    __slots__ = ("_base", "_changing", "touched")

    def __init__(self, base: Map[K, V]) -> None:
        self._base = base
        self._changing: MapMutation[K, V] | None = None
        self.touched: dict[K, None] = {}

    def get(self, key: K) -> V | None:
        return self._base.get(key) if self._changing is None else self._changing.get(key)

    def put(self, key: K, value: V) -> None:
        if self._changing is None:
            self._changing = self._base.mutate()
        self._changing[key] = value
        self.touched[key] = None

    def drop(self, key: K) -> None:
        if self.get(key) is None:
            return
        if self._changing is None:
            self._changing = self._base.mutate()
        del self._changing[key]
        self.touched[key] = None

    def finish(self) -> Map[K, V]:
        return self._base if self._changing is None else self._changing.finish()


class Delta:
    """Changes on top of an image. `keeps_config` says whether this node knows a setting; others are passed over."""

    def __init__(self, image: Image, *, keeps_config: Callable[[int, str], bool] | None = None) -> None:
        self.image = image
        self._keeps_config = keeps_config
        self._metadata_version = image.features.metadata_version
        self._next_producer_id = image.next_producer_id
        self._levels = _Draft(image.features.levels)
        self._brokers = _Draft(image.brokers)
        self._controllers = _Draft(image.controllers)
        self._topics = TopicsDraft(image)
        self._configs = _Draft(image.configs)
        self._quotas = _Draft(image.quotas)
        self._acls = _Draft(image.acls)
        self._scram = _Draft(image.scram)
        self._tokens = _Draft(image.tokens)
        self._finished: Image | None = None

    def apply(self, record: object) -> None:
        """Take in one record; ReplayError if it does not fit what came before it."""
        applied = _APPLY.get(type(record))
        if applied is None:
            raise ReplayError(f"{type(record).__name__} cannot be applied to an image")
        assert self._finished is None, "a finished delta takes no more records"
        applied(self, record)

    def finish(self, *, offset: int, epoch: int, timestamp: int) -> Image:
        """The next image; the arguments are those of the last record that it holds."""
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
            # Whoever waits for what the records decide need not wait for this.
            _follow=None if placement is None or topics is old.topics else partial(self._followed, placement),
            _alive=old._alive if brokers is old.brokers else None,
        )
        return new

    def _followed(self, placement: Placement) -> Placement:
        """The placement after all records, of the one before them."""
        return placement.updated(self.changes.partitions)

    @cached_property
    def changes(self) -> Changes:
        """What the finished delta changed."""
        assert self._finished is not None, "a delta knows what it changed when it is finished"
        touched = Touched(
            brokers=self._brokers.touched,
            controllers=self._controllers.touched,
            topics=self._topics.touched(),
            configs=self._configs.touched,
            quotas=self._quotas.touched,
            acls=self._acls.touched,
            scram=self._scram.touched,
            tokens=self._tokens.touched,
        )
        return Changes(self.image, self._finished, touched)

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self._brokers.put(record.broker_id, new_broker(record))

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._brokers.drop(record.broker_id)

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._put_broker(replace(self._registered(record.id, record.epoch), fenced=True))

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._put_broker(replace(self._registered(record.id, record.epoch), fenced=False))

    def _change_broker(self, record: records.BrokerRegistrationChangeRecord) -> None:
        self._put_broker(changed_broker(self._registered(record.broker_id, record.broker_epoch), record))

    def _put_broker(self, broker: Broker) -> None:
        if broker != self._brokers.get(broker.id):
            self._brokers.put(broker.id, broker)

    def _registered(self, broker_id: int, epoch: int) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"broker {broker_id} is to change but is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"broker {broker_id} is to change at epoch {epoch} but is registered at {broker.epoch}")
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
        self._configs.drop(ConfigResource(ResourceType.TOPIC, name))

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

    def _give_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _set_feature(self, record: records.FeatureLevelRecord) -> None:
        level = record.feature_level
        if record.name == METADATA_VERSION:
            if level not in METADATA_VERSIONS:
                raise ReplayError(
                    f"no metadata.version has level {level}; this node knows {min(METADATA_VERSIONS)} and up"
                )
            self._metadata_version = level
        elif record.name == KRAFT_VERSION:
            return  # the quorum's own control records say this one
        elif level == 0:
            self._levels.drop(record.name)
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
            raise ReplayError(f"no access rule of id {record.id.hex()}")
        self._acls.drop(record.id)

    def _set_scram(self, record: records.UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._scram.put(ScramUser(record.mechanism, record.name), credential)

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._scram.drop(ScramUser(record.mechanism, record.name))

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
        self._tokens.drop(record.token_id)

    def _pass(self, record: object) -> None:
        """Nothing to keep: a sign of life, or the state of a migration that Kafka 4 no longer has."""


def _put_unless_empty(draft: _Draft[K, Map[str, V]], key: K, values: Map[str, V]) -> None:
    if values:
        draft.put(key, values)
    else:
        draft.drop(key)


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
    records.ProducerIdsRecord: Delta._give_producer_ids,
    records.BrokerRegistrationChangeRecord: Delta._change_broker,
    records.AccessControlEntryRecord: Delta._add_acl,
    records.RemoveAccessControlEntryRecord: Delta._remove_acl,
    records.NoOpRecord: Delta._pass,
    records.ZkMigrationStateRecord: Delta._pass,
    records.RemoveUserScramCredentialRecord: Delta._remove_scram,
    records.RemoveDelegationTokenRecord: Delta._remove_token,
    records.RegisterControllerRecord: Delta._register_controller,
    records.ClearElrRecord: Delta._clear_elr,
}
"""Every record but those that begin and end a metadata transaction, which `Loader` heeds."""
