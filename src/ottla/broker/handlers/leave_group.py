"""LeaveGroup (key 13): take members out of a classic group.

Up to v2, one member leaves, and its error is the error of the answer. From v3 on, many members leave, also static ones,
and each has an error of its own (KIP-345).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_group
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.classic_protocol import leave_group
from ottla.protocol.errors import NONE, ApiError, InvalidGroupId, UnknownMemberId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_FIRST_OF_MANY: Final = 3


def leave_group_failed(request: LeaveGroupRequest, version: int, error: ApiError) -> LeaveGroupResponse:
    """Return the error at the top; for a missing group, UNKNOWN_MEMBER_ID for each member."""
    if version >= _FIRST_OF_MANY and isinstance(error, UnknownMemberId):
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error.code
                )
                for member in request.members
            ]
        )
    return LeaveGroupResponse(error_code=error.code)


@endpoint(ApiKey.LEAVE_GROUP, failed=leave_group_failed, guard=of_group(Operation.READ))
def leave(call: Call[BrokerNode], request: LeaveGroupRequest) -> Later:
    """Let the group's coordinator decide."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    if call.version < _FIRST_OF_MANY:
        request.members = [MemberIdentity(member_id=request.member_id)]
    context = context_of(call)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(shard, _LeaveTicket(call, request), lambda state: leave_group(state, request, context))


class _LeaveTicket(CallTicket):
    """Answers a client before v3 with the error of its only member."""

    __slots__ = ()

    def answer(self, response: Any, /) -> None:
        if self.call.version < _FIRST_OF_MANY and response.error_code == NONE:
            response.error_code = response.members[0].error_code
        self.call.answer(response)
