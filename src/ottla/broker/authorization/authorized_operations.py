"""What a client may do with a resource, as the bits that answers have for it (KIP-430): bit n is operation n.

As long as nobody restricts access, everyone may do everything that there is to do with it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from ottla.broker.authorization.access_checks import is_allowed
from ottla.broker.authorization.actions import CLUSTER_NAME, SUPPORTED_OPERATIONS, Action, Operation, ResourceType
from ottla.broker.requests.call import Call
from ottla.protocol.errors import NONE

NOT_REQUESTED: Final = -(1 << 31)
_EVERYTHING: Final = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}


def topic_operations(call: Call[Any], topics: Iterable[str]) -> dict[str, int]:
    """What the client may do with each of some topics, whether they exist or not."""
    return _operations(call, ResourceType.TOPIC, topics)


def cluster_operations(call: Call[Any]) -> int:
    """What the client may do with the cluster: nothing, if it may not describe it."""
    if not is_allowed(call, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return _operations(call, ResourceType.CLUSTER, (CLUSTER_NAME,))[CLUSTER_NAME]


class DescribedGroup(Protocol):
    """A group in any of the answers that describe groups."""

    group_id: str
    error_code: int
    authorized_operations: int


def set_group_operations(call: Call[Any], groups: Sequence[DescribedGroup]) -> None:
    """Write into descriptions of groups what the client may do with each; groups with an error are left out."""
    described = [group for group in groups if group.error_code == NONE]
    found = _operations(call, ResourceType.GROUP, (group.group_id for group in described))
    for group in described:
        group.authorized_operations = found[group.group_id]


def _operations(call: Call[Any], kind: ResourceType, names: Iterable[str]) -> dict[str, int]:
    """The bits of each name; the authorizer is asked once about all of them."""
    authorizer = call.node.authorizer
    if authorizer is None:
        return dict.fromkeys(names, _EVERYTHING[kind])
    found = dict.fromkeys(names, 0)
    actions = [
        Action(operation, kind, name, 1, False, False) for name in found for operation in SUPPORTED_OPERATIONS[kind]
    ]
    if actions:
        for action, result in zip(actions, authorizer.authorize(call, actions), strict=True):
            if result:
                found[action.name] |= 1 << action.operation
    return found
