"""AlterConfigs and IncrementalAlterConfigs (keys 33 and 44): change settings while the cluster runs.

A broker changes the levels of its own loggers, and checks whether it could run with its new settings. The controller
decides on everything else. The answer combines both, in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.authorization.admin_guards import guard_alter_configs, guard_incremental_alter_configs
from ottla.broker.handlers import broker_loggers
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.config.settings.brokers import broker_setting, drop_invalid_settings
from ottla.config.settings.values import SettingType
from ottla.metadata.controller.configs import Operation
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import ApiError, InvalidConfig, InvalidRequest, UnknownServerError, UnsupportedVersion
from ottla.protocol.messages.apis import CONTROLLER, ApiKey
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental

_KEPT_BY_CONTROLLER: Final = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)
_RESOURCE_TYPES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}


def incremental_alter_configs_failed(
    request: incremental.IncrementalAlterConfigsRequest, version: int, error: ApiError
) -> incremental.IncrementalAlterConfigsResponse:
    """Return the error for each resource."""
    return incremental.IncrementalAlterConfigsResponse(
        responses=[
            _resource_response(incremental.AlterConfigsResourceResponse, resource, error)
            for resource in request.resources
        ]
    )


def alter_configs_failed(
    request: legacy.AlterConfigsRequest, version: int, error: ApiError
) -> legacy.AlterConfigsResponse:
    """Return the error for each resource."""
    return legacy.AlterConfigsResponse(
        responses=[
            _resource_response(legacy.AlterConfigsResourceResponse, resource, error) for resource in request.resources
        ]
    )


@endpoint(
    ApiKey.INCREMENTAL_ALTER_CONFIGS, failed=incremental_alter_configs_failed, guard=guard_incremental_alter_configs
)
async def incremental_alter_configs(
    call: Call[BrokerNode], request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single settings."""

    def prepare(resource: incremental.AlterConfigsResource) -> bool:
        without_value = [
            config.name
            for config in resource.configs
            if config.config_operation != Operation.DELETE and config.value is None
        ]
        _check_names([config.name for config in resource.configs], without_value)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            broker_loggers.alter_levels(
                call.node.node_id, resource.resource_name, resource.configs, validate_only=request.validate_only
            )
            call.node.levels_changed()
            return True
        if resource.resource_type == ResourceType.BROKER:
            _check_broker(call.node, resource.resource_name, lambda: _settings_after(call.node, resource))
        elif resource.resource_type not in _KEPT_BY_CONTROLLER:
            raise InvalidRequest(f"Unknown resource type {resource.resource_type}")
        return False

    return incremental.IncrementalAlterConfigsResponse(
        responses=await _alter(call, request, prepare, incremental.AlterConfigsResourceResponse)
    )


@endpoint(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    on=CONTROLLER,
    failed=incremental_alter_configs_failed,
    guard=guard_incremental_alter_configs,
)
async def incremental_alter_configs_on_controller(
    call: Call[ControllerNode], request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Change the levels of this controller's loggers, and let the active controller decide on the rest."""
    known = [resource for resource in request.resources if resource.resource_type in _RESOURCE_TYPES]
    unknown = [resource for resource in request.resources if resource.resource_type not in _RESOURCE_TYPES]
    loggers = [resource for resource in known if resource.resource_type == ResourceType.BROKER_LOGGER]
    rest = [resource for resource in known if resource.resource_type != ResourceType.BROKER_LOGGER]
    responses = [
        _resource_response(
            incremental.AlterConfigsResourceResponse,
            resource,
            UnsupportedVersion(f"Unknown resource type {resource.resource_type}."),
        )
        for resource in unknown
    ]
    if rest:
        request_for_rest = incremental.IncrementalAlterConfigsRequest(
            resources=rest, validate_only=request.validate_only
        )
        decided = await call.node.decide(call, request_for_rest)
        responses += decided.responses
    for resource in loggers:
        error: ApiError | None = None
        try:
            broker_loggers.alter_levels(
                call.node.node_id, resource.resource_name, resource.configs, validate_only=request.validate_only
            )
            call.node.levels_changed()
        except ApiError as raised:  # an invalid resource fails alone
            error = raised
        responses.append(_resource_response(incremental.AlterConfigsResourceResponse, resource, error))
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


@endpoint(ApiKey.ALTER_CONFIGS, failed=alter_configs_failed, guard=guard_alter_configs)
async def alter_configs(call: Call[BrokerNode], request: legacy.AlterConfigsRequest) -> legacy.AlterConfigsResponse:
    """Replace all settings of each resource."""

    def prepare(resource: legacy.AlterConfigsResource) -> bool:
        without_value = [config.name for config in resource.configs if config.value is None]
        _check_names([config.name for config in resource.configs], without_value)
        if resource.resource_type == ResourceType.BROKER:
            settings = {config.name: config.value for config in resource.configs if config.value is not None}
            _check_broker(call.node, resource.resource_name, lambda: settings)
        elif resource.resource_type not in _KEPT_BY_CONTROLLER:
            raise InvalidRequest(f"Unknown resource type {resource.resource_type}")
        return False

    return legacy.AlterConfigsResponse(
        responses=await _alter(call, request, prepare, legacy.AlterConfigsResourceResponse)
    )


async def _alter(
    call: Call[BrokerNode], request: Any, prepare: Callable[[Any], bool], make_response: Callable[..., Any]
) -> list[Any]:
    """Prepare each resource, and let the controller decide on those that `prepare` did not complete."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    done: dict[int, ApiError | None] = {}
    for number, resource in enumerate(request.resources):
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            if prepare(resource):
                done[number] = None
        except ApiError as error:  # an invalid resource fails alone
            done[number] = error
    rest = [resource for number, resource in enumerate(request.resources) if number not in done]
    decided: dict[tuple[int, str], Any] = {}
    if rest:
        response = await call.node.decide(call, type(request)(resources=rest, validate_only=request.validate_only))
        decided = {(answer.resource_type, answer.resource_name): answer for answer in response.responses}
    return [
        _resource_response(make_response, resource, done[number])
        if number in done
        else decided.get((resource.resource_type, resource.resource_name))
        or _resource_response(make_response, resource, UnknownServerError())
        for number, resource in enumerate(request.resources)
    ]


def _check_names(names: Sequence[str], without_value: Sequence[str]) -> None:
    if len({*names}) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    if without_value:
        raise InvalidRequest(f"Null value not supported for : {', '.join(without_value)}")


def _check_broker(node: BrokerNode, name: str, settings: Callable[[], dict[str, str]]) -> None:
    """Raise InvalidRequest if the settings are another broker's, or if this broker could not run with them."""
    if name and broker_loggers.parse_node_id(name) != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id}, but received {name}")
    node.check_broker_settings(name, settings())


def _settings_after(node: BrokerNode, resource: incremental.AlterConfigsResource) -> dict[str, str]:
    """Return the settings of a broker, or of all brokers, after an alteration."""
    settings = drop_invalid_settings(node.image.config(ResourceType.BROKER, resource.resource_name))
    for config in resource.configs:
        try:
            operation = Operation(config.config_operation)
        except ValueError:
            raise InvalidRequest(f"Unknown operations type {config.config_operation}") from None
        if operation is Operation.DELETE:
            settings.pop(config.name, None)
        elif operation is Operation.SET:
            settings[config.name] = config.value or ""
        else:
            settings[config.name] = _changed_list(config.name, settings.get(config.name), operation, config.value or "")
    return settings


def _changed_list(name: str, current: str | None, operation: Operation, value: str) -> str:
    setting = broker_setting(name)
    if setting is None:
        raise InvalidConfig(f"Unknown config name: {name}")
    if setting.type is not SettingType.LIST:
        raise InvalidConfig(f"Config value {operation.name.lower()} is not allowed for config key: {name}")
    items = [item for item in (setting.default or "" if current is None else current).split(",") if item]
    changed = value.split(",")
    if operation is Operation.APPEND:
        return ",".join([*items, *(item for item in changed if item not in items)])
    return ",".join(item for item in items if item not in changed)


def _resource_response(make_response: Callable[..., Any], resource: Any, error: ApiError | None) -> Any:
    return make_response(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
