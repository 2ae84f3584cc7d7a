"""What a client may do with a resource, as the bits that answers have for it (KIP-430): bit n is operation n.

As long as nobody restricts access, everyone may do everything that there is to do with it.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from ottla.access.actions import CLUSTER_NAME, SUPPORTED, Action, Kind, Operation
from ottla.api.call import Call
from ottla.errors import NONE

NOT_ASKED: Final = -(1 << 31)
_EVERYTHING: Final = {kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED.items()}


def topic_operations(call: Call[Any], topic: str) -> int:
    """What the client may do with a topic, be it there or not."""
    return _operations(call, Kind.TOPIC, topic)


def cluster_operations(call: Call[Any]) -> int:
    """What the client may do with the cluster: nothing, if it may not see that."""
    found = _operations(call, Kind.CLUSTER, CLUSTER_NAME)
    return found if found & 1 << Operation.DESCRIBE else 0


class DescribedGroup(Protocol):
    """A group in any of the answers that describe groups."""

    group_id: str
    error_code: int
    authorized_operations: int


def tell_group_operations(call: Call[Any], groups: Iterable[DescribedGroup]) -> None:
    """Write into descriptions of groups what the client may do with each; those that failed say nothing of it."""
    for each in groups:
        if each.error_code == NONE:
            each.authorized_operations = _operations(call, Kind.GROUP, each.group_id)


def _operations(call: Call[Any], kind: Kind, name: str) -> int:
    authorizer = call.node.authorizer
    if authorizer is None:
        return _EVERYTHING[kind]
    actions = [Action(operation, kind, name) for operation in SUPPORTED[kind]]
    results = authorizer.authorize(call.client, actions)
    return sum(1 << action.operation for action, result in zip(actions, results, strict=True) if result)
