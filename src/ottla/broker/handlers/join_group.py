"""JoinGroup (key 11): join a classic group and wait for its next generation.

v4 a new member is given its id first (KIP-394) · v5 static members (KIP-345) · v7 no protocol is null, not empty
(KIP-559) · v9 a static leader that comes back need not assign (KIP-814).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.access_checks import of_group
from ottla.broker.authorization.actions import Operation
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
_BEFORE_ANY_GROUP: Final = (InvalidGroupId, InvalidSessionTimeout)
"""What `check_join` raises."""


def join_group_failed(request: JoinGroupRequest, version: int, error: ApiError) -> JoinGroupResponse:
    """The error, with the member's id as it came if no group was asked, as Kafka has it."""
    member_id = request.member_id if isinstance(error, _BEFORE_ANY_GROUP) else ""
    return _in_version(JoinGroupResponse(error_code=error.code, member_id=member_id), version)


@endpoint(ApiKey.JOIN_GROUP, failed=join_group_failed, guard=of_group(Operation.READ))
def join(call: Call[BrokerNode], request: JoinGroupRequest) -> Later:
    """Let the group's coordinator decide; the answer comes with the next generation."""
    context = context_of(call)
    check_join(request, context)
    ticket = _JoinTicket(call, request)
    shard = call.node.groups.of(request.group_id)
    return submit_to_coordinator(shard, ticket, lambda state: join_group(state, request, ticket, context))


class _JoinTicket(CallTicket):
    """Answers in the version of its own request, whoever's request caused the answer."""

    __slots__ = ()

    def answer(self, response: Any, /) -> None:
        self.call.answer(_in_version(response, self.call.version))


def _in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if not response.protocol_name:
        response.protocol_name = None if version >= _FIRST_WITH_NULL else ""
    return response
