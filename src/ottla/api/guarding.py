"""Asks the authorizer, for guards and handlers.

A guard is called with each request of its API before the handler, on nodes that have an authorizer. It raises if the
client may not ask this at all; or it takes what the client may not touch out of the request, and has it put into the
answer with its error (`call.amend`). So handlers know nothing of rules, and nodes without rules do not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from ottla.access.actions import CLUSTER_NAME, Action, Kind, Operation
from ottla.api.call import Call
from ottla.api.dispatch import Guard
from ottla.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

T = TypeVar("T")

TOPIC_REFUSED: Final = TopicAuthorizationFailed.code
GROUP_REFUSED: Final = GroupAuthorizationFailed.code


def may(call: Call[Any], operation: Operation, kind: Kind, name: str = CLUSTER_NAME) -> bool:
    """Whether the client may do one thing."""
    authorizer = call.node.authorizer
    return authorizer is None or bool(authorizer.authorize(call.client, [Action(operation, kind, name)])[0])


def allowed(call: Call[Any], operation: Operation, kind: Kind, names: Iterable[str]) -> Collection[str]:
    """Those of some names with which the client may do something."""
    asked = [Action(operation, kind, name) for name in dict.fromkeys(names)]
    authorizer = call.node.authorizer
    results = [True] * len(asked) if authorizer is None else authorizer.authorize(call.client, asked)
    return {action.name for action, result in zip(asked, results, strict=True) if result}


def split(
    call: Call[Any], operation: Operation, kind: Kind, items: Iterable[T], name_of: Callable[[T], str]
) -> tuple[list[T], list[T]]:
    """What may be touched, and what may not."""
    given = list(items)
    names = allowed(call, operation, kind, map(name_of, given))
    return [each for each in given if name_of(each) in names], [each for each in given if name_of(each) not in names]


def require_cluster(call: Call[Any], operation: Operation) -> None:
    """Raise unless the client may do something with the cluster."""
    if not may(call, operation, Kind.CLUSTER):
        raise ClusterAuthorizationFailed("Cluster authorization failed.")


def require_group(call: Call[Any], operation: Operation, group_id: str) -> None:
    """Raise unless the client may do something with a group."""
    if not may(call, operation, Kind.GROUP, group_id):
        raise GroupAuthorizationFailed("Group authorization failed.")


def require_transactional_id(call: Call[Any], operation: Operation, transactional_id: str) -> None:
    """Raise unless the client may do something with a transactional id."""
    if not may(call, operation, Kind.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationFailed("Transactional Id authorization failed.")


def require_readable(call: Call[Any], topic: str, *, by_follower: bool) -> None:
    """Raise unless records of a topic may be fetched: followers must be brokers, consumers may READ it."""
    operation, kind = (Operation.CLUSTER_ACTION, Kind.CLUSTER) if by_follower else (Operation.READ, Kind.TOPIC)
    if not may(call, operation, kind, CLUSTER_NAME if by_follower else topic):
        raise TopicAuthorizationFailed("Topic authorization failed.")


def of_cluster(operation: Operation) -> Guard:
    """A guard that asks for one operation on the cluster."""

    def guard(call: Call[Any], request: Any) -> None:
        require_cluster(call, operation)

    return guard


def of_group(operation: Operation) -> Guard:
    """A guard that asks for one operation on the group that the request names."""

    def guard(call: Call[Any], request: Any) -> None:
        require_group(call, operation, request.group_id)

    return guard


def answered_with(call: Call[Any], field: str, refused: Iterable[Any]) -> None:
    """Have answers for what was taken out put into a list of the response."""
    more = list(refused)
    if not more:
        return

    def amend(response: Any) -> Any:
        getattr(response, field).extend(more)
        return response

    call.amend = amend


def error_of(kind: Kind) -> ApiError:
    """What a client is told who may not do something with a resource of a kind."""
    match kind:
        case Kind.TOPIC:
            return TopicAuthorizationFailed("Topic authorization failed.")
        case Kind.GROUP:
            return GroupAuthorizationFailed("Group authorization failed.")
        case Kind.TRANSACTIONAL_ID:
            return TransactionalIdAuthorizationFailed("Transactional Id authorization failed.")
        case _:
            return ClusterAuthorizationFailed("Cluster authorization failed.")
