"""Replay of the records that register brokers and controllers, and change their registrations."""

import struct
from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.values import Broker, Controller, Endpoint
from ottla.protocol.features import FeatureRange
from ottla.protocol.messages.records.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

_FENCED = {-1: False, 1: True}
_SHUTTING_DOWN = {1: True}
_signed_halves = struct.Struct(">qq").unpack


def new_broker(record: RegisterBrokerRecord) -> Broker:
    """Return the registration of a record. It replaces an older one of the broker completely."""
    if not all(endpoint.name for endpoint in record.end_points):
        raise ReplayError(f"listener without a name: {record}")
    cordoned = record.cordoned_log_dirs
    return Broker(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        features=_features(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=_sorted_directories(record.log_dirs),
        cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
        is_migrating_zk=record.is_migrating_zk_broker,
    )


def changed_broker(old: Broker, record: BrokerRegistrationChangeRecord) -> Broker:
    """Return the registration after a change. 0 and an empty list of log directories mean no change."""
    cordoned = record.cordoned_log_dirs
    return replace(
        old,
        fenced=_switch(old.fenced, record.fenced, _FENCED, record),
        in_controlled_shutdown=_switch(
            old.in_controlled_shutdown, record.in_controlled_shutdown, _SHUTTING_DOWN, record
        ),
        log_dirs=_sorted_directories(record.log_dirs) if record.log_dirs else old.log_dirs,
        cordoned_log_dirs=old.cordoned_log_dirs if cordoned is None else tuple(cordoned),
    )


def new_controller(record: RegisterControllerRecord) -> Controller:
    for endpoint in record.end_points:
        if not 0 <= endpoint.security_protocol <= 3:
            raise ReplayError(f"no security protocol {endpoint.security_protocol}: {record}")
    return Controller(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        features=_features(record.features),
        zk_migration_ready=record.zk_migration_ready,
    )


def _endpoints(endpoints: Iterable[BrokerEndpoint] | Iterable[ControllerEndpoint]) -> Map[str, Endpoint]:
    return Map(
        {endpoint.name: Endpoint(endpoint.host, endpoint.port, endpoint.security_protocol) for endpoint in endpoints}
    )


def _features(features: Iterable[BrokerFeature] | Iterable[ControllerFeature]) -> Map[str, FeatureRange]:
    return Map(
        {
            feature.name: FeatureRange(feature.min_supported_version, feature.max_supported_version)
            for feature in features
        }
    )


def _sorted_directories(directories: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(directories, key=_signed_halves))


def _switch(old: bool, change: int, meanings: dict[int, bool], record: object) -> bool:
    if change == 0:
        return old
    if change not in meanings:
        raise ReplayError(f"unknown change value {change}: {record}")
    return meanings[change]
