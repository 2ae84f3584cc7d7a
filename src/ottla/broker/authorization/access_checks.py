"""Questions of guards and handlers to the authorizer.

On nodes that have an authorizer, an API's guard runs before the handler. It raises if the client may not send the
request at all. Otherwise it removes denied items from the request, and adds them to the response with their error
(`call.amend`). So handlers know nothing of ACLs, and nodes without ACLs do not pay for them.

An authorizer in another thread or process decides later. It raises `Unanswered`, and the guard, the handler or the
amendment runs again when the decisions are known. So all three ask before they change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.broker.authorization.actions import CLUSTER_NAME, Action, Operation, ResourceType, Unanswered
from ottla.broker.requests.call import Call
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

T = TypeVar("T")

TOPIC_DENIED: Final = TopicAuthorizationFailed.code
GROUP_DENIED: Final = GroupAuthorizationFailed.code


def is_allowed(
    call: Call[Any],
    operation: Operation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    log_if_denied: bool = True,
) -> bool:
    """Return whether the client may perform an operation on a resource."""
    authorizer = call.node.authorizer
    if authorizer is None:
        return True
    action = Action(operation, resource_type, name, log_if_denied=log_if_denied)
    return bool(authorizer.authorize(call, [action])[0])


def filter_allowed(
    call: Call[Any],
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    log_if_denied: bool = True,
) -> Collection[str]:
    """Return the names that the client may use; the authorizer gets each once, with the number of its references."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return filter_allowed_counted(call, operation, resource_type, counts, log_if_denied=log_if_denied)


def filter_allowed_counted(
    call: Call[Any],
    operation: Operation,
    resource_type: ResourceType,
    counts: Mapping[str, int],
    *,
    log_if_denied: bool = True,
) -> Collection[str]:
    """Return the names that the client may use, as `filter_allowed` does; the references are counted already."""
    authorizer = call.node.authorizer
    if authorizer is None or not counts:
        return counts.keys()
    actions = [Action(operation, resource_type, name, count, True, log_if_denied) for name, count in counts.items()]
    results = authorizer.authorize(call, actions)
    if False not in results:
        return counts.keys()
    return {action.name for action, result in zip(actions, results, strict=True) if result}


def split_allowed(
    call: Call[Any],
    operation: Operation,
    resource_type: ResourceType,
    items: Iterable[T],
    name_of: Callable[[T], str | None],
    *,
    log_if_denied: bool = True,
) -> tuple[list[T], list[T]]:
    """Return the items that the client may use, those without a name among them, and the denied ones."""
    listed = list(items)
    names = [name_of(item) for item in listed]
    asked = (name for name in names if name is not None)
    allowed_names = filter_allowed(call, operation, resource_type, asked, log_if_denied=log_if_denied)
    allowed: list[T] = []
    denied: list[T] = []
    for item, name in zip(listed, names, strict=True):
        (allowed if name is None or name in allowed_names else denied).append(item)
    return allowed, denied


def require_cluster(call: Call[Any], operation: Operation) -> None:
    """Raise ClusterAuthorizationFailed unless the client may perform an operation on the cluster."""
    if not is_allowed(call, operation, ResourceType.CLUSTER):
        raise authorization_error(ResourceType.CLUSTER)


def require_group(call: Call[Any], operation: Operation, group_id: str) -> None:
    """Raise GroupAuthorizationFailed unless the client may perform an operation on a group."""
    if not is_allowed(call, operation, ResourceType.GROUP, group_id):
        raise authorization_error(ResourceType.GROUP)


def require_transactional_id(call: Call[Any], operation: Operation, transactional_id: str) -> None:
    """Raise TransactionalIdAuthorizationFailed unless the client may perform an operation on a transactional id."""
    if not is_allowed(call, operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise authorization_error(ResourceType.TRANSACTIONAL_ID)


async def ask_authorizer(call: Call[Any], ask: Callable[[], T]) -> T:
    """Call `ask` until the authorizer has answered all its questions; `ask` changes nothing before its last one."""
    while True:
        try:
            return ask()
        except Unanswered as question:
            call.learn(await question.answers())


def run_when_decided(call: Call[Any], act: Callable[[], object]) -> None:
    """Call `act` now, or when the authorizer has answered; `act` changes nothing before its last question.

    If the authorizer cannot decide, everything is denied.
    """
    try:
        act()
    except Unanswered as question:
        question.then(call, lambda: run_when_decided(call, act))


def append_denied(call: Call[Any], field: str, denied: Iterable[Any]) -> None:
    """Add the results of denied items to a list of the response."""
    results = list(denied)
    if not results:
        return

    def amend(response: Any) -> Any:
        getattr(response, field).extend(results)
        return response

    call.amend = amend


def authorization_error(resource_type: ResourceType) -> ApiError:
    """Return the error for a client that may not perform an operation on a resource, in Kafka's words."""
    match resource_type:
        case ResourceType.TOPIC:
            return TopicAuthorizationFailed("Topic authorization failed.")
        case ResourceType.GROUP:
            return GroupAuthorizationFailed("Group authorization failed.")
        case ResourceType.TRANSACTIONAL_ID:
            return TransactionalIdAuthorizationFailed("Transactional Id authorization failed.")
        case _:
            return ClusterAuthorizationFailed("Cluster authorization failed.")
