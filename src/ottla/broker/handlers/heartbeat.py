"""Heartbeat (key 12): a member of a classic group is alive, and learns whether it must rejoin. v3 static members."""

from __future__ import annotations

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_group
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups import classic_protocol
from ottla.protocol.errors import CoordinatorLoading, InvalidGroupId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse


@endpoint(ApiKey.HEARTBEAT, guard=of_group(Operation.READ))
def heartbeat(call: Call[BrokerNode], request: HeartbeatRequest) -> Later | HeartbeatResponse:
    """Let the group's coordinator decide. While it is loading, the heartbeat counts as valid."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    context = context_of(call)
    shard = call.node.groups.shard_for(request.group_id)
    try:
        return submit_to_coordinator(
            shard, CallTicket(call, request), lambda state: classic_protocol.heartbeat(state, request, context)
        )
    except CoordinatorLoading:
        return HeartbeatResponse()
