"""Guards that are declared rather than written.

A declared guard names the part of a request that it checks, the operation and the resource type that it asks about, and
the result of a denied item. Requests that do not fit are guarded by functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.broker.authorization.access_checks import (
    append_denied,
    is_allowed,
    require_cluster,
    require_group,
    require_transactional_id,
    split_allowed,
)
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import Guard
from ottla.protocol.wire.types import ZERO_UUID

NameOf = Callable[[Call[Any], Any], str | None]
"""Returns the name of an item's resource; None if there is no such resource, which the handler then reports."""


def name_field(call: Call[Any], item: Any) -> str:
    """Return the name of an item that has a field `name`."""
    return str(item.name)


def topic_name(call: Call[Any], item: Any) -> str | None:
    """Return the name of a topic that the request names by `name` or by `topic_id`."""
    return resolve_topic_name(call, item.name, item.topic_id)


def item_itself(call: Call[Any], item: str) -> str:
    """Return an item that is the name of a resource."""
    return item


def resolve_topic_name(call: Call[Any], name: str, topic_id: bytes) -> str | None:
    """Return the name of a topic that is given by name or by id; None if no topic has the id."""
    if topic_id == ZERO_UUID:
        return name
    topic = call.node.image.topic_by_id(topic_id)
    return None if topic is None else str(topic.name)


@dataclass(frozen=True, kw_only=True)
class ItemGuard:
    """Takes the items that the client may not touch out of the request, and adds their results to the response."""

    operation: Operation
    resource_type: ResourceType
    items: str
    """The field of the request that lists the items."""
    results: str
    """The field of the response that lists their results."""
    deny: Callable[[Any], Any]
    """Builds the result of a denied item."""
    name_of: NameOf = name_field
    requires: tuple[Guard, ...] = ()
    """Guards that the whole request must pass first."""
    exempt: Operation | None = None
    """An operation on the cluster that allows all items."""

    def __call__(self, call: Call[Any], request: Any) -> None:
        """Guard a request."""
        for guard in self.requires:
            guard(call, request)
        if _is_exempt(call, self.exempt):
            return
        items = getattr(request, self.items)
        good, denied = split_allowed(
            call, self.operation, self.resource_type, items, lambda item: self.name_of(call, item)
        )
        setattr(request, self.items, good)
        append_denied(call, self.results, map(self.deny, denied))


@dataclass(frozen=True, kw_only=True)
class ResultFilter:
    """Removes the results that the client may not see from the response."""

    operation: Operation
    resource_type: ResourceType
    results: str
    """The field of the response that lists the results."""
    name_of: NameOf
    exempt: Operation | None = None
    """An operation on the cluster that shows all results."""
    log_if_denied: bool = True

    def __call__(self, call: Call[Any], request: Any) -> None:
        """Guard a request."""
        if not _is_exempt(call, self.exempt):
            call.amend = lambda response: self._filter(call, response)

    def _filter(self, call: Call[Any], response: Any) -> Any:
        visible, _ = split_allowed(
            call,
            self.operation,
            self.resource_type,
            getattr(response, self.results),
            lambda result: self.name_of(call, result),
            log_if_denied=self.log_if_denied,
        )
        setattr(response, self.results, visible)
        return response


def of_cluster(operation: Operation) -> Guard:
    """Return a guard that requires an operation on the cluster."""

    def guard(call: Call[Any], request: Any) -> None:
        require_cluster(call, operation)

    return guard


def of_group(operation: Operation) -> Guard:
    """Return a guard that requires an operation on the group of the request."""

    def guard(call: Call[Any], request: Any) -> None:
        require_group(call, operation, request.group_id)

    return guard


def of_transactional_id(operation: Operation) -> Guard:
    """Return a guard that requires an operation on the transactional id of the request."""

    def guard(call: Call[Any], request: Any) -> None:
        require_transactional_id(call, operation, request.transactional_id)

    return guard


def all_of(*guards: Guard) -> Guard:
    """Return a guard that requires what all of these guards require, in this order."""

    def guard(call: Call[Any], request: Any) -> None:
        for part in guards:
            part(call, request)

    return guard


def _is_exempt(call: Call[Any], operation: Operation | None) -> bool:
    return operation is not None and is_allowed(call, operation, ResourceType.CLUSTER, log_if_denied=False)
