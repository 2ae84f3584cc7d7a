"""ConsumerGroupHeartbeat (key 68): a member joins, stays in or leaves a consumer group, and gets partitions (KIP-848).

v1 subscribes by regular expression, and the member generates its own id (KIP-1082).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.group_guards import guard_group_heartbeat
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.consumer.checking import check_heartbeat
from ottla.coordinators.groups.consumer.heartbeat import heartbeat
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.metadata_versions import GROUP_VERSION

_FIRST_WITH_CONSUMER_GROUPS: Final = 1


def has_consumer_groups(node: BrokerNode) -> bool:
    """Return whether the cluster's features and this broker's settings enable consumer groups."""
    is_supported = node.image.features.level(GROUP_VERSION) >= _FIRST_WITH_CONSUMER_GROUPS
    return is_supported and "consumer" in node.setting("group.coordinator.rebalance.protocols")


@endpoint(ApiKey.CONSUMER_GROUP_HEARTBEAT, guard=guard_group_heartbeat)
def consumer_group_heartbeat(
    call: Call[BrokerNode], request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Later:
    """Let the group's coordinator decide."""
    if not has_consumer_groups(call.node):
        return ConsumerGroupHeartbeatResponse(error_code=UnsupportedVersion.code)
    context = context_of(call)
    check_heartbeat(request, context)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(shard, CallTicket(call, request), lambda state: heartbeat(state, request, context))
