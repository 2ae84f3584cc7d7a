"""JoinGroup (key 11): join a classic group and wait for its next generation.

v4 a new member gets its id first (KIP-394) · v5 static members (KIP-345) · v7 a missing protocol is null, not empty
(KIP-559) · v9 a returning static leader may skip the assignment (KIP-814).
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
from ottla.coordinators.groups.classic.joining import check_join
from ottla.coordinators.groups.classic_protocol import join_group
from ottla.protocol.errors import ApiError, InvalidGroupId, InvalidSessionTimeout
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupResponse

_FIRST_WITH_NULL: Final = 7
_ERRORS_BEFORE_GROUP: Final = (InvalidGroupId, InvalidSessionTimeout)
"""The errors that `check_join` raises."""


def join_group_failed(request: JoinGroupRequest, version: int, error: ApiError) -> JoinGroupResponse:
    """Return the error. As in Kafka, it has the request's member id only if the group was not asked."""
    member_id = request.member_id if isinstance(error, _ERRORS_BEFORE_GROUP) else ""
    return _in_version(JoinGroupResponse(error_code=error.code, member_id=member_id), version)


@endpoint(ApiKey.JOIN_GROUP, failed=join_group_failed, guard=of_group(Operation.READ))
def join(call: Call[BrokerNode], request: JoinGroupRequest) -> Later:
    """Let the group's coordinator decide. The answer is sent with the next generation."""
    context = context_of(call)
    check_join(request, context)
    ticket = _JoinTicket(call, request)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(shard, ticket, lambda state: join_group(state, request, ticket, context))


class _JoinTicket(CallTicket):
    """Answers in the version of its own request; another member's request may cause the answer."""

    __slots__ = ()

    def answer(self, response: Any, /) -> None:
        self.call.answer(_in_version(response, self.call.version))


def _in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if not response.protocol_name:
        response.protocol_name = None if version >= _FIRST_WITH_NULL else ""
    return response
