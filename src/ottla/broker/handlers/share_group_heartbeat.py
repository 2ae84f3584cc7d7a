"""ShareGroupHeartbeat (key 76): a member joins, stays in or leaves a share group, and gets partitions (KIP-932)."""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_group_heartbeat
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.share.heartbeat import HeartbeatReply, check_heartbeat, check_member_id, heartbeat
from ottla.protocol.errors import ApiError, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def check_enabled(call: Call[BrokerNode]) -> None:
    """Raise unless the cluster has share groups."""
    if not call.node.sharing.is_enabled:
        raise UnsupportedVersion("The version of API is not supported.")


def heartbeat_failed(request: ShareGroupHeartbeatRequest, version: int, error: ApiError) -> ShareGroupHeartbeatResponse:
    """Return the error alone: as in Kafka, only coordinators send a message."""
    return ShareGroupHeartbeatResponse(error_code=error.code)


@endpoint(ApiKey.SHARE_GROUP_HEARTBEAT, failed=heartbeat_failed, guard=guard_group_heartbeat)
def share_group_heartbeat(call: Call[BrokerNode], request: ShareGroupHeartbeatRequest) -> Later:
    """Let the group's coordinator decide. After the answer, initialize the share states that the group needs."""
    check_enabled(call)
    check_member_id(request.member_id)
    context, ticket = context_of(call), _Ticket(call, request)
    try:
        check_heartbeat(request)
        shard = call.node.groups.shard_for(request.group_id)
        shard.submit("ShareGroupHeartbeat", lambda state: heartbeat(state, request, context), ticket)
    except ApiError as error:
        ticket.fail(error)
    return LATER


class _Ticket(CallTicket):
    """A heartbeat, whose decision may also initialize share states."""

    __slots__ = ()

    def answer(self, response: HeartbeatReply, /) -> None:
        self.call.answer(response.response)
        if response.states is not None:
            self.call.node.share_groups.initialize(response.states)

    def fail(self, error: ApiError, /) -> None:
        self.call.answer(ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message))
