"""OffsetDelete (key 47): delete committed offsets of topics that a group no longer reads."""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_offset_delete
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.offsets import delete_offsets
from ottla.protocol.errors import InvalidGroupId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.offset_delete import OffsetDeleteRequest


@endpoint(ApiKey.OFFSET_DELETE, guard=guard_offset_delete)
def offset_delete(call: Call[BrokerNode], request: OffsetDeleteRequest) -> Later:
    """Let the group's coordinator decide."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    context = context_of(call)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(
        shard, CallTicket(call, request), lambda state: delete_offsets(state, request, context)
    )
