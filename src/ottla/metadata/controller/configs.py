"""IncrementalAlterConfigs and AlterConfigs for topics, brokers, groups and client metrics.

The alterations of one resource are atomic. Eligible leader replicas depend on min.insync.replicas, so a new value
clears them (KIP-966).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from ottla.config.settings.catalogue import broker_settings, group_settings, topic_settings
from ottla.config.settings.setting import Setting
from ottla.config.settings.values import SettingType
from ottla.metadata.controller.config_validation import (
    MIN_ISR,
    validate_alteration,
    validate_configs,
    validate_resource,
)
from ottla.metadata.controller.decision import Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.protocol.errors import ApiError, InvalidConfig, InvalidRequest
from ottla.protocol.messages.records.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental

V = TypeVar("V")
Asked = TypeVar("Asked", incremental.AlterConfigsResource, legacy.AlterConfigsResource)


class Operation(IntEnum):
    """The operation of an IncrementalAlterConfigs entry."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Operation)


def incremental_alter_configs(
    view: ControllerView, request: incremental.IncrementalAlterConfigsRequest, *, forwarded: bool = True
) -> Decision[incremental.IncrementalAlterConfigsResponse]:
    """Set, delete, append to or subtract from configs. `forwarded` says whether a broker forwarded the request."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    records: list[ConfigRecord] = []
    responses = []
    for (kind, name), alteration in _by_resource(request.resources).items():
        response = incremental.AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        try:
            if times[kind, name] > 1:
                raise InvalidRequest("Duplicate resource.")
            resource = ConfigResource(kind, name)
            altered = _incremental_changes(view, resource, alteration.configs)
            records += _alter(view, resource, altered, {}, forwarded=forwarded)
        except ApiError as error:  # an invalid resource fails alone
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    decision = decide_atomically(
        [*records, *elr_clearing_records(view, records)],
        incremental.IncrementalAlterConfigsResponse(responses=responses),
    )
    return decision.without_records() if request.validate_only else decision


def alter_configs(
    view: ControllerView, request: legacy.AlterConfigsRequest, *, forwarded: bool = True
) -> Decision[legacy.AlterConfigsResponse]:
    """Replace all settings of resources: what is not named goes back to its default."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    records: list[ConfigRecord] = []
    responses = []
    for (kind, name), alteration in _by_resource(request.resources).items():
        response = legacy.AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        try:
            if times[kind, name] > 1:
                raise InvalidRequest("Duplicate resource.")
            resource = ConfigResource(kind, name)
            altered = _reject_duplicate_keys((config.name, config.value) for config in alteration.configs)
            if missing := [name for name, value in altered.items() if value is None]:
                raise InvalidRequest(f"Null value not supported for : {','.join(missing)}")
            removed: dict[str, str | None] = dict.fromkeys(
                setting for setting in sorted(view.image.config(kind, name)) if setting not in altered
            )
            records += _alter(view, resource, altered, removed, forwarded=forwarded)
        except ApiError as error:  # an invalid resource fails alone
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    decision = decide_atomically(
        [*records, *elr_clearing_records(view, records)], legacy.AlterConfigsResponse(responses=responses)
    )
    return decision.without_records() if request.validate_only else decision


def elr_clearing_records(view: ControllerView, records: Sequence[ConfigRecord]) -> list[object]:
    """Return the records that clear eligible leader replicas after a change of min.insync.replicas.

    Unlike in Kafka 4.3, a partition without leader and ISR keeps them: nothing has been written since they became
    eligible, so they still have all committed records, and no other record says which replicas do.
    """
    if not view.elr_enabled:
        return []
    names = {
        record.resource_name if record.resource_type == ResourceType.TOPIC else "": None
        for record in records
        if record.name == MIN_ISR
    }
    if not names:
        return []
    cleared: list[object] = [ClearElrRecord(topic_name=name) for name in names]
    for topic_partition in view.image.partitions_without_leader():
        partition = topic_partition.partition
        is_affected = "" in names or topic_partition.topic.name in names
        if is_affected and not partition.isr and (partition.elr or partition.last_known_elr):
            cleared.append(
                PartitionChangeRecord(
                    topic_id=topic_partition.topic.id,
                    partition_id=topic_partition.number,
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                )
            )
    return cleared


def _by_resource(resources: Iterable[Asked]) -> dict[tuple[int, str], Asked]:
    return {(resource.resource_type, resource.resource_name): resource for resource in resources}


def _reject_duplicate_keys(pairs: Iterable[tuple[str, V]]) -> dict[str, V]:
    configs: dict[str, V] = {}
    for name, value in pairs:
        if name in configs:
            raise InvalidRequest("Error due to duplicate config keys")
        configs[name] = value
    return configs


def _incremental_changes(
    view: ControllerView, resource: ConfigResource, configs: Sequence[incremental.AlterableConfig]
) -> dict[str, str | None]:
    operations = _reject_duplicate_keys((config.name, config) for config in configs)
    current = view.image.config(resource.type, resource.name)
    return {name: _apply_operation(resource, name, current.get(name), config) for name, config in operations.items()}


def _apply_operation(
    resource: ConfigResource, name: str, current: str | None, config: incremental.AlterableConfig
) -> str | None:
    """Return the value after an operation, or None if it is deleted."""
    if config.config_operation not in _OPERATIONS:
        raise InvalidRequest(f"Unknown operation type {config.config_operation}")
    operation = Operation(config.config_operation)
    if operation is Operation.DELETE:
        return None
    if config.value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    if operation is Operation.SET:
        return config.value
    setting = _settings_of(resource.type).get(name)
    if setting is None or setting.type is not SettingType.LIST:
        raise InvalidConfig(f"Can't {operation.name} to key {name} because its type is not LIST.")
    items = [item for item in (setting.default or "" if current is None else current).split(",") if item]
    for item in config.value.split(","):
        if operation is Operation.APPEND and item not in items:
            items.append(item)
        elif operation is Operation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _alter(
    view: ControllerView,
    resource: ConfigResource,
    altered: dict[str, str | None],
    removed: dict[str, str | None],
    *,
    forwarded: bool,
) -> list[ConfigRecord]:
    """Validate and return the records of one resource. `removed` are configs that the request drops implicitly."""
    current = view.image.config(resource.type, resource.name)
    # Brokers reload some configs even if the value is the same, such as the name of a file (KAFKA-14136).
    rewrites_unchanged = resource.type == ResourceType.BROKER
    written = {name: value for name, value in altered.items() if rewrites_unchanged or current.get(name) != value}
    for name, value in (written | removed).items():
        validate_alteration(view, resource, name, value, forwarded=forwarded)
    after = {name: value for name, value in (dict(current) | written | removed).items() if value is not None}
    validate_resource(view, resource)
    validate_configs(view, resource, after, written)
    if view.options.alter_config_policy is not None:  # as in Kafka, even if nothing changes
        view.options.alter_config_policy(resource, written)
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in (written | removed).items()
    ]


def _settings_of(kind: int) -> Mapping[str, Setting]:
    match kind:
        case ResourceType.TOPIC:
            return topic_settings()
        case ResourceType.BROKER:
            return broker_settings()
        case ResourceType.GROUP:
            return group_settings()
    return {}
