"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses that match a filter.

A filter has a component for each entity type that a quota must have. A strict filter excludes quotas with further
entity types.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.quotas import CLIENT_ID, IP, USER
from ottla.metadata.image.values import QuotaEntity
from ottla.protocol.errors import ApiError, InvalidRequest, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class Match(IntEnum):
    """How a component matches an entity's name."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


_MATCHES: Final = frozenset(Match)


def describe_client_quotas_failed(
    request: DescribeClientQuotasRequest, version: int, error: ApiError
) -> DescribeClientQuotasResponse:
    """Return null entries, which differ from an empty list."""
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


@endpoint(
    ApiKey.DESCRIBE_CLIENT_QUOTAS, failed=describe_client_quotas_failed, guard=of_cluster(Operation.DESCRIBE_CONFIGS)
)
def describe_client_quotas(
    call: Call[BrokerNode], request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Find the quotas in the image."""
    components = _components(request.components)
    quotas = call.node.image.quotas
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas[entity].items())],
            )
            for entity in sorted(quotas, key=_order)
            if _matches_all(entity, components, strict=request.strict)
        ]
    )


def _components(requested: Sequence[ComponentData]) -> dict[str, ComponentData]:
    components: dict[str, ComponentData] = {}
    for component in requested:
        if component.match_type not in _MATCHES:
            raise InvalidRequest(f"Unknown match type {component.match_type}")
        if component.match_type == Match.EXACT and component.match is None:
            raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type != Match.EXACT and component.match is not None:
            kind = Match(component.match_type).name
            raise InvalidRequest(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")
        if not component.entity_type:
            raise InvalidRequest("Invalid empty entity type.")
        if component.entity_type in components:
            raise InvalidRequest(f"Entity type {component.entity_type} cannot appear more than once in the filter.")
        if component.entity_type not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {component.entity_type}")
        components[component.entity_type] = component
    if IP in components and len(components) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
    return components


def _matches_all(entity: QuotaEntity, components: dict[str, ComponentData], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(kind in names and _matches(names[kind], component) for kind, component in components.items())


def _matches(name: str | None, component: ComponentData) -> bool:
    if component.match_type == Match.EXACT:
        return name == component.match
    return component.match_type == Match.SPECIFIED or name is None


def _order(entity: QuotaEntity) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in entity]
