"""FindCoordinator (key 10): which broker coordinates a group, a transaction or a share partition.

The coordinator is the leader of the key's partition in an internal topic. The first request creates the topic; until it
has leaders, the client must retry. v4 has many keys at once (KIP-699), v6 keys of share partitions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.broker.authorization.group_guards import guard_find_coordinator
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.runtime.shards import partition_for
from ottla.protocol.errors import ApiError, CoordinatorNotAvailable, InvalidRequest
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_OF_MANY: Final = 4
_FIRST_WITH_SHARE_KEYS: Final = 6
_NO_NODE: Final = -1


class KeyType(IntEnum):
    """The kind of a key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final = {
    KeyType.GROUP: "__consumer_offsets",
    KeyType.TRANSACTION: "__transaction_state",
    KeyType.SHARE: "__share_group_state",
}


class _Address(NamedTuple):
    node_id: int
    host: str
    port: int


def find_coordinator_failed(request: FindCoordinatorRequest, version: int, error: ApiError) -> FindCoordinatorResponse:
    """Return no coordinator, and the error."""
    return _answer(request, version, [_failed(key, error) for key in _keys(request, version)])


@endpoint(ApiKey.FIND_COORDINATOR, failed=find_coordinator_failed, guard=guard_find_coordinator)
def find_coordinator(call: Call[BrokerNode], request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Look up each key. An invalid key fails alone."""
    return _answer(
        request, call.version, [_locate(call, request.key_type, key) for key in _keys(request, call.version)]
    )


def _keys(request: FindCoordinatorRequest, version: int) -> list[str]:
    return request.coordinator_keys if version >= _FIRST_OF_MANY else [request.key]


def _answer(request: FindCoordinatorRequest, version: int, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _failed(key: str, error: ApiError) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message)


def _locate(call: Call[BrokerNode], key_type: int, key: str) -> Coordinator:
    try:
        address = _find(call, _type_of(key_type, key, call.version), key)
    except ApiError as error:
        return _failed(key, error)
    message = "" if call.version >= _FIRST_OF_MANY else "NONE"  # as in Kafka
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port, error_message=message)


def _type_of(key_type: int, key: str, version: int) -> KeyType:
    try:
        kind = KeyType(key_type)
    except ValueError:
        raise InvalidRequest(f"there is no coordinator of type {key_type}") from None
    if kind is KeyType.SHARE:
        if version < _FIRST_WITH_SHARE_KEYS:
            raise InvalidRequest("keys of share partitions need version 6 or later")
        _check_share_key(key)
    return kind


def _check_share_key(key: str) -> None:
    """Raise InvalidRequest unless the key is `group:topic id:partition`."""
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.rpartition(":")
    if not group or not topic_id or not partition.isdecimal():
        raise InvalidRequest(f"{key!r} is not a key of a share partition: group:topic id:partition is expected")


def _find(call: Call[BrokerNode], key_type: KeyType, key: str) -> _Address:
    image, name = call.node.image, _TOPICS[key_type]
    topic = image.topic(name)
    if topic is None:
        call.node.create_internal_topic(name)
        raise CoordinatorNotAvailable("The coordinator is not available.")
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    leader = image.endpoint(partition.leader, call.client.listener) if image.is_alive(partition.leader) else None
    if leader is None:
        raise CoordinatorNotAvailable("The coordinator is not available.")
    return _Address(partition.leader, leader.host, leader.port)
