"""FindCoordinator (key 10): which broker coordinates a group, a transaction or a share partition.

Whoever leads the partition of the coordinators' topic that a key belongs to. The topic is made when it is first asked
for; until it has leaders the client is told to ask again. v4 asks for many keys at once (KIP-699), v6 for share keys.
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
_NOBODY: Final = -1


class KeyType(IntEnum):
    """What a key is the name of."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final = {
    KeyType.GROUP: "__consumer_offsets",
    KeyType.TRANSACTION: "__transaction_state",
    KeyType.SHARE: "__share_group_state",
}


class _Found(NamedTuple):
    node_id: int
    host: str
    port: int


def find_coordinator_failed(request: FindCoordinatorRequest, version: int, error: ApiError) -> FindCoordinatorResponse:
    """Nobody, and why."""
    return _answer(request, version, [_failed(key, error) for key in _keys(request, version)])


@endpoint(ApiKey.FIND_COORDINATOR, failed=find_coordinator_failed, guard=guard_find_coordinator)
def find_coordinator(call: Call[BrokerNode], request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Look each key up; one bad key spoils only its own answer."""
    return _answer(
        request, call.version, [_locate(call, request.key_type, key) for key in _keys(request, call.version)]
    )


def _keys(request: FindCoordinatorRequest, version: int) -> list[str]:
    return request.coordinator_keys if version >= _FIRST_OF_MANY else [request.key]


def _answer(request: FindCoordinatorRequest, version: int, found: list[Coordinator]) -> FindCoordinatorResponse:
    if version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _failed(key: str, error: ApiError) -> Coordinator:
    return Coordinator(key=key, node_id=_NOBODY, host="", port=-1, error_code=error.code, error_message=error.message)


def _locate(call: Call[BrokerNode], key_type: int, key: str) -> Coordinator:
    try:
        found = _find(call, _type_of(key_type, key, call.version), key)
    except ApiError as error:
        return _failed(key, error)
    message = "" if call.version >= _FIRST_OF_MANY else "NONE"  # so says Kafka
    return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=message)


def _type_of(key_type: int, key: str, version: int) -> KeyType:
    try:
        known = KeyType(key_type)
    except ValueError:
        raise InvalidRequest(f"there is no coordinator of type {key_type}") from None
    if known is KeyType.SHARE:
        if version < _FIRST_WITH_SHARE_KEYS:
            raise InvalidRequest("share partitions can be asked for from v6 on")
        _check_share_key(key)
    return known


def _check_share_key(key: str) -> None:
    """A share partition's key is group:topic id:partition."""
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.rpartition(":")
    if not group or not topic_id or not partition.isdecimal():
        raise InvalidRequest(f"{key!r} is no key of a share partition")


def _find(call: Call[BrokerNode], key_type: KeyType, key: str) -> _Found:
    image, name = call.node.image, _TOPICS[key_type]
    topic = image.topic(name)
    if topic is None:
        call.node.create_internal_topic(name)
        raise CoordinatorNotAvailable("The coordinator is not available.")
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    where = image.endpoint(partition.leader, call.client.listener) if image.is_alive(partition.leader) else None
    if where is None:
        raise CoordinatorNotAvailable("The coordinator is not available.")
    return _Found(partition.leader, where.host, where.port)
