"""SyncGroup (key 14): the leader of a classic group sends the assignment, and each member gets its own.

v3 static members · v5 protocol type and name in request and response, to be checked (KIP-559).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_group
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.classic_protocol import sync_group
from ottla.protocol.errors import InconsistentGroupProtocol, InvalidGroupId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest

_FIRST_WITH_PROTOCOL: Final = 5


@endpoint(ApiKey.SYNC_GROUP, guard=of_group(Operation.READ))
def sync(call: Call[BrokerNode], request: SyncGroupRequest) -> Later:
    """Let the group's coordinator decide. The answer is sent with the leader's assignment."""
    if call.version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol("the request needs a protocol type and a protocol name")
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    context, ticket = context_of(call), CallTicket(call, request)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(shard, ticket, lambda state: sync_group(state, request, ticket, context))
