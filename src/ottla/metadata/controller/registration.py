"""BrokerRegistration, UnregisterBroker and ControllerRegistration."""

from collections.abc import Iterable

from ottla.config.listeners import SecurityProtocol
from ottla.metadata.controller.broker_transitions import handle_broker_restarted, handle_broker_unregistered
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.controller.view import RESERVED_DIRECTORIES, ControllerView
from ottla.metadata.image.values import Broker
from ottla.protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.protocol.messages.rpc.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.protocol.messages.rpc.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.messages.rpc.controller_registration import Listener as ControllerListener
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.metadata_versions import CONTROLLER_REGISTRATION, KRAFT_VERSION, METADATA_VERSION

_PROTOCOLS = frozenset(SecurityProtocol)


def check_broker_epoch(view: ControllerView, broker_id: int, epoch: int) -> Broker:
    """Return the broker if it is registered with this epoch. Every request of a broker is checked this way."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpoch(f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        raise StaleBrokerEpoch(f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}")
    return broker


def register_broker(
    view: ControllerView,
    heartbeats: Heartbeats,
    request: BrokerRegistrationRequest,
    *,
    now_ms: int,
    next_offset: int,
    kraft_version: int,
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker, fenced. The epoch of a new incarnation is the next offset of the metadata log."""
    if request.cluster_id != view.options.cluster_id:
        raise InconsistentClusterId(
            f"Expected cluster ID {view.options.cluster_id}, but got cluster ID {request.cluster_id}"
        )
    existing = view.image.brokers.get(request.broker_id)
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same_incarnation and heartbeats.has_session(existing.id, existing.epoch, now_ms):
        raise DuplicateBrokerRegistration(
            "Another broker is registered with that broker id. If the broker was recently restarted this should"
            " self-resolve once the heartbeat manager expires the broker's session."
        )
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegistered("Controller does not support registering ZK brokers.")
    if view.assigns_directories:
        _check_directories(view, request)
    _check_listeners(request.listeners)
    _check_features(view, request.features, kraft_version)
    record = _registration(view, request)
    records: list[object] = []
    if existing is not None and same_incarnation:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    else:
        record.broker_epoch = next_offset
        clean = existing is not None and existing.epoch == request.previous_broker_epoch
        records += handle_broker_restarted(view, request.broker_id, clean=clean)
    records.append(record)
    heartbeats.record_registration(request.broker_id, record.broker_epoch, next_offset + len(records) - 1)
    return Decision(tuple(records), BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def unregister_broker(
    view: ControllerView, heartbeats: Heartbeats, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    """Unregister a broker, as an operator requests."""
    broker = view.image.brokers.get(request.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {request.broker_id} is not currently registered")
    heartbeats.remove(broker.id)
    return Decision(tuple(handle_broker_unregistered(view, broker)), UnregisterBrokerResponse(error_message=None))


def register_controller(
    view: ControllerView, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Register a controller with its endpoints and supported features."""
    if view.metadata_version < CONTROLLER_REGISTRATION:
        raise UnsupportedVersion("The current MetadataVersion is too old to support controller registrations.")
    _check_listeners(request.listeners)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Decision((record,), ControllerRegistrationResponse(error_message=None), atomic=True)


def _registration(view: ControllerView, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        log_dirs=list(request.log_dirs) if view.assigns_directories else [],
    )


def _check_directories(view: ControllerView, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise InvalidRegistration("No directories specified in request")
    if any(directory in RESERVED_DIRECTORIES for directory in request.log_dirs):
        raise InvalidRegistration("Reserved directory ID in request")
    if len({*request.log_dirs}) != len(request.log_dirs):
        raise InvalidRegistration("Duplicate directory ID in request")
    for broker in view.image.brokers.values():
        if broker.id == request.broker_id:
            continue
        for directory in request.log_dirs:
            if directory in broker.log_dirs:
                raise InvalidRegistration(f"Broker {broker.id} is already registered with directory {directory.hex()}")


def _check_listeners(listeners: Iterable[Listener] | Iterable[ControllerListener]) -> None:
    names = set()
    for listener in listeners:
        if not listener.name or listener.name in names:
            raise InvalidRegistration(f"Listener name {listener.name!r} is empty or duplicated")
        if listener.security_protocol not in _PROTOCOLS:
            raise InvalidRegistration(
                f"Listener {listener.name} has the unknown security protocol {listener.security_protocol}"
            )
        names.add(listener.name)


def _check_features(view: ControllerView, features: Iterable[Feature], kraft_version: int) -> None:
    """Raise unless the broker supports every finalized feature level. A feature that it does not name is at 0."""
    finalized = {
        **view.image.features.levels,
        METADATA_VERSION: view.metadata_version,
        KRAFT_VERSION: kraft_version,
    }
    ranges = {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in features}
    if METADATA_VERSION not in ranges:
        raise InvalidRegistration("Request features do not contain 'metadata.version'")
    for name in sorted({*finalized, *ranges}):
        level = finalized.get(name, 0)
        lowest, highest = ranges.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise UnsupportedVersion(
                f"Unable to register because the broker does not support finalized version {level} of {name}."
                f" The broker wants a version between {lowest} and {highest}, inclusive."
            )
