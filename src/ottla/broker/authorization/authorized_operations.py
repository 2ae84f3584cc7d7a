"""The operations that a client may perform on a resource, as bits of responses (KIP-430): bit n is operation n.

Without an authorizer, all operations are authorized.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from ottla.broker.authorization.access_checks import is_allowed
from ottla.broker.authorization.actions import CLUSTER_NAME, SUPPORTED_OPERATIONS, Action, Operation, ResourceType
from ottla.broker.requests.call import Call
from ottla.protocol.errors import NONE

NOT_REQUESTED: Final = -(1 << 31)
_ALL_OPERATIONS: Final = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}


def topic_operations(call: Call[Any], topics: Iterable[str]) -> dict[str, int]:
    """Return the authorized operations of topics, which need not exist, by name."""
    return _operations(call, ResourceType.TOPIC, topics)


def cluster_operations(call: Call[Any]) -> int:
    """Return the authorized operations of the cluster; none if the client may not describe it."""
    if not is_allowed(call, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return _operations(call, ResourceType.CLUSTER, (CLUSTER_NAME,))[CLUSTER_NAME]


class DescribedGroup(Protocol):
    """A group in any response that describes groups."""

    group_id: str
    error_code: int
    authorized_operations: int


def set_group_operations(call: Call[Any], groups: Sequence[DescribedGroup]) -> None:
    """Set the authorized operations of described groups, except groups with an error."""
    described = [group for group in groups if group.error_code == NONE]
    operations = _operations(call, ResourceType.GROUP, (group.group_id for group in described))
    for group in described:
        group.authorized_operations = operations[group.group_id]


def _operations(call: Call[Any], resource_type: ResourceType, names: Iterable[str]) -> dict[str, int]:
    """Return the bits of each name. The authorizer gets one question about all of them."""
    authorizer = call.node.authorizer
    if authorizer is None:
        return dict.fromkeys(names, _ALL_OPERATIONS[resource_type])
    bits = dict.fromkeys(names, 0)
    actions = [
        Action(operation, resource_type, name, 1, False, False)
        for name in bits
        for operation in SUPPORTED_OPERATIONS[resource_type]
    ]
    if actions:
        for action, result in zip(actions, authorizer.authorize(call, actions), strict=True):
            if result:
                bits[action.name] |= 1 << action.operation
    return bits
