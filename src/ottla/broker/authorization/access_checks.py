"""Asks the authorizer, for guards and handlers.

A guard is called with each request of its API before the handler, on nodes that have an authorizer. It raises if the
client may not ask this at all; or it takes what the client may not touch out of the request, and has it put into the
answer with its error (`call.amend`). So handlers know nothing of rules, and nodes without rules do not pay for them.

An authorizer in another thread or process answers later: its question is an exception (`Unanswered`), after which the
guard, the handler or the amendment is repeated with the answers. So all three ask before they change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.broker.authorization.actions import CLUSTER_NAME, Action, Kind, Operation, Unanswered
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import Guard
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

T = TypeVar("T")

TOPIC_REFUSED: Final = TopicAuthorizationFailed.code
GROUP_REFUSED: Final = GroupAuthorizationFailed.code


def may(
    call: Call[Any], operation: Operation, kind: Kind, name: str = CLUSTER_NAME, *, log_if_denied: bool = True
) -> bool:
    """Whether the client may do one thing."""
    authorizer = call.node.authorizer
    if authorizer is None:
        return True
    action = Action(operation, kind, name, log_if_denied=log_if_denied)
    return bool(authorizer.authorize(call, [action])[0])


def allowed(
    call: Call[Any], operation: Operation, kind: Kind, names: Iterable[str], *, log_if_denied: bool = True
) -> Collection[str]:
    """The names with which the client may do something; each is asked about once, with the number of its references."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return allowed_of(call, operation, kind, counts, log_if_denied=log_if_denied)


def allowed_of(
    call: Call[Any], operation: Operation, kind: Kind, counts: Mapping[str, int], *, log_if_denied: bool = True
) -> Collection[str]:
    """As `allowed`, for names whose references are counted."""
    authorizer = call.node.authorizer
    if authorizer is None or not counts:
        return counts.keys()
    actions = [Action(operation, kind, name, count, True, log_if_denied) for name, count in counts.items()]
    results = authorizer.authorize(call, actions)
    if False not in results:
        return counts.keys()
    return {action.name for action, result in zip(actions, results, strict=True) if result}


def split(
    call: Call[Any],
    operation: Operation,
    kind: Kind,
    items: Iterable[T],
    name_of: Callable[[T], str],
    *,
    log_if_denied: bool = True,
) -> tuple[list[T], list[T]]:
    """What may be touched, and what may not."""
    given = list(items)
    names = [name_of(item) for item in given]
    good_names = allowed(call, operation, kind, names, log_if_denied=log_if_denied)
    good = [item for item, name in zip(given, names, strict=True) if name in good_names]
    if len(good) == len(given):
        return good, []
    return good, [item for item, name in zip(given, names, strict=True) if name not in good_names]


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


async def answered(call: Call[Any], ask: Callable[[], T]) -> T:
    """What `ask` yields when the authorizer has answered its questions; it changes nothing before its last one."""
    while True:
        try:
            return ask()
        except Unanswered as question:
            call.learn(await question.answers())


def when_answered(call: Call[Any], act: Callable[[], object]) -> None:
    """Act, now or as soon as the authorizer has answered; `act` changes nothing before its last question.

    If the authorizer cannot decide, everything is refused.
    """
    try:
        act()
    except Unanswered as question:
        question.then(call, lambda: when_answered(call, act))


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
