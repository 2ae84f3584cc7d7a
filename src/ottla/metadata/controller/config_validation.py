"""Validation of configs, by resource type."""

import re
from collections.abc import Mapping

from ottla.config.settings.catalogue import broker_settings, group_settings
from ottla.config.settings.setting import InvalidSetting, Setting, UpdateMode
from ottla.config.settings.topics import NO_SETTINGS, validate_topic_settings
from ottla.config.settings.values import InvalidValue, SettingType, parse_value
from ottla.metadata.controller.topic_names import check_topic_name
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.protocol.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS, METADATA_VERSIONS

MIN_ISR = "min.insync.replicas"
CORDONED = "cordoned.log.dirs"
MAX_VALUE_LENGTH = 32_767
_CLIENT_METRICS = ("interval.ms", "match", "metrics")
_CLIENT_MATCHES = (
    *("client_id", "client_instance_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)
_MIN_PUSH_MS, _MAX_PUSH_MS = 100, 3_600_000
_comma = re.compile(r"\s*,\s*")


def validate_resource(view: ControllerView, resource: ConfigResource) -> None:
    """Raise unless the resource exists and can have configs."""
    match resource.type:
        case ResourceType.TOPIC if not resource.name:
            raise InvalidRequest("Default topic resources are not allowed.")
        case ResourceType.TOPIC if resource.name not in view.image.topics:
            check_topic_name(resource.name)
            raise UnknownTopicOrPartition(f"The topic '{resource.name}' does not exist.")
        case ResourceType.BROKER if resource.name:
            _check_node(view, resource.name)
        case ResourceType.GROUP if not resource.name:
            raise InvalidRequest("Default group resources are not allowed.")
        case ResourceType.CLIENT_METRICS if not resource.name:
            raise InvalidRequest("Subscription name can't be empty")
        case ResourceType.TOPIC | ResourceType.BROKER | ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            return
        case ResourceType.BROKER_LOGGER:
            raise InvalidRequest("Unexpected resource type BROKER_LOGGER.")
        case _:
            raise UnsupportedVersion(f"Unknown resource type {resource.type}.")


def validate_configs(
    view: ControllerView, resource: ConfigResource, settings: Mapping[str, str], altered: Mapping[str, str | None]
) -> None:
    """Raise unless the resource can have these configs, some of which are altered."""
    match resource.type:
        case ResourceType.TOPIC:
            validate_topic_configs(view, settings, before=view.image.topic_config(resource.name))
        case ResourceType.BROKER:
            _check_broker_settings(resource.name, altered)
        case ResourceType.GROUP:
            _check_group_settings(view, settings)
        case ResourceType.CLIENT_METRICS:
            _check_client_metrics(settings)


def validate_topic_configs(
    view: ControllerView, settings: Mapping[str, str], before: Mapping[str, str] = NO_SETTINGS
) -> None:
    remote_storage = view.options.setting("remote.log.storage.system.enable") is True
    try:
        validate_topic_settings(settings, view.options.settings, before=before, remote_storage=remote_storage)
    except InvalidSetting as error:
        raise InvalidConfig(str(error)) from None


def validate_alteration(
    view: ControllerView, resource: ConfigResource, name: str, value: str | None, *, forwarded: bool
) -> None:
    """Raise unless this alteration is allowed, whatever the other configs are."""
    if value is not None and len(value) > MAX_VALUE_LENGTH:
        raise InvalidConfig(
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
        )
    if resource.type != ResourceType.BROKER:
        return
    if name == MIN_ISR and view.elr_enabled:
        # All brokers must use the same value, because ELR depends on it (KIP-966).
        if resource.name:
            raise InvalidConfig("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
        if value is None:
            raise InvalidConfig("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
    if name == CORDONED:
        _check_cordoned(view, resource, value, forwarded=forwarded)


def _check_cordoned(view: ControllerView, resource: ConfigResource, value: str | None, *, forwarded: bool) -> None:
    if view.metadata_version < CORDONED_LOG_DIRS:
        needed = METADATA_VERSIONS[CORDONED_LOG_DIRS].name
        raise InvalidConfig(f"The cordoned.log.dirs configuration requires metadata.version {needed} or above.")
    if forwarded or value is None or not value.strip():
        return
    # Only the broker knows its directories, so a request that it did not forward can only remove some.
    current = view.image.config(resource.type, resource.name).get(CORDONED, "")
    if not {*_comma.split(value.strip())} <= {*_comma.split(current.strip())}:
        raise InvalidConfig(
            "When updating cordoned.log.dirs via controllers, the new value must be a subset of the current"
            " configuration value."
        )


def _check_node(view: ControllerView, name: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequest("Unable to parse broker name as a base 10 number.") from None
    if node_id < 0:
        raise InvalidRequest("Invalid negative broker ID.")
    if node_id not in view.image.brokers and node_id not in view.image.controllers:
        raise BrokerIdNotRegistered(f"Node ID {node_id} is not registered.")


def _check_broker_settings(broker: str, altered: Mapping[str, str | None]) -> None:
    """Validate only what is altered: other configs may be of an earlier release and unknown here."""
    for name, value in altered.items():
        setting = broker_settings().get(name)
        if setting is None or value is None:
            continue  # configs with a listener prefix; the broker that has the listener validates them
        if setting.update is UpdateMode.READ_ONLY:
            raise InvalidConfig(f"Cannot update these configs dynamically: {name}")
        if setting.update is UpdateMode.PER_BROKER and not broker:
            raise InvalidConfig(
                f"Cannot update these configs at default cluster level, broker id must be specified: {name}"
            )
        _parse(setting, value)


def _check_group_settings(view: ControllerView, settings: Mapping[str, str]) -> None:
    group_configs = group_settings()
    for name, value in settings.items():
        if name not in group_configs:
            raise InvalidConfig(f"Unknown group config name: {name}")
        _parse(group_configs[name], value)
        _check_group_bounds(view, name, value)
    for kind in ("consumer", "share", "streams"):
        session_ms, heartbeat_ms = (_group_number(view, settings, kind, name) for name in _SESSION_AND_HEARTBEAT)
        is_set = {f"{kind}.{name}" for name in _SESSION_AND_HEARTBEAT} & {*settings}
        if is_set and session_ms <= heartbeat_ms:
            raise InvalidConfig(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


_SESSION_AND_HEARTBEAT = ("session.timeout.ms", "heartbeat.interval.ms")


def _check_group_bounds(view: ControllerView, name: str, value: str) -> None:
    """Raise if the value is outside the brokers' bounds. Some configs have only an upper bound."""
    kind, _, rest = name.partition(".")
    if group_settings()[name].type is not SettingType.INT:
        return
    lowest, highest = (f"group.{kind}.{bound}.{rest.removeprefix('num.')}" for bound in ("min", "max"))
    if lowest in broker_settings() and int(value) < view.options.number(lowest):
        raise InvalidConfig(f"{name} must be greater than or equal to {lowest}")
    if highest in broker_settings() and int(value) > view.options.number(highest):
        raise InvalidConfig(f"{name} must be less than or equal to {highest}")


def _group_number(view: ControllerView, settings: Mapping[str, str], kind: str, name: str) -> int:
    value = settings.get(f"{kind}.{name}")
    return view.options.number(f"group.{kind}.{name}") if value is None else int(value)


def _check_client_metrics(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if name not in _CLIENT_METRICS:
            raise InvalidRequest(f"Unknown client metrics configuration: {name}")
        if name == "interval.ms":
            _check_push_interval(value)
        elif name == "match":
            for pattern in filter(None, _comma.split(value.strip())):
                _check_match(pattern)


def _check_push_interval(value: str) -> None:
    try:
        interval = parse_value(SettingType.INT, value)
    except InvalidValue as error:
        raise InvalidConfig(f"Invalid value {value} for configuration interval.ms: {error}") from None
    assert isinstance(interval, int)
    if not _MIN_PUSH_MS <= interval <= _MAX_PUSH_MS:
        raise InvalidRequest(
            f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )


def _check_match(pattern: str) -> None:
    name, equals, expression = pattern.partition("=")
    try:
        re.compile(expression)
    except re.error:
        equals = ""
    if not equals or name.strip() not in _CLIENT_MATCHES:
        raise InvalidConfig(f"Illegal client matching pattern: {pattern}")


def _parse(setting: Setting, value: str) -> None:
    try:
        setting.parse(value)
    except InvalidSetting as error:
        raise InvalidConfig(str(error)) from None
