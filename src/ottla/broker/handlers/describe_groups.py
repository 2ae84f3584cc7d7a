"""DescribeGroups (key 15): classic groups, their members and the members' assignments.

v3 authorized operations (KIP-430) · v6 a missing group is an error (KIP-1043); before, it was shown as dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.broker.authorization.access_checks import run_when_decided
from ottla.broker.authorization.authorized_operations import set_group_operations
from ottla.broker.authorization.group_guards import guard_describe_groups
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.groups.describing import describe_group
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.storage.state_machine.decision import Decision


def describe_groups_failed(request: DescribeGroupsRequest, version: int, error: ApiError) -> DescribeGroupsResponse:
    """Return the error for each group."""
    return DescribeGroupsResponse(groups=[_failed(group_id, error) for group_id in request.groups])


@endpoint(ApiKey.DESCRIBE_GROUPS, failed=describe_groups_failed, guard=guard_describe_groups)
def describe_groups(call: Call[BrokerNode], request: DescribeGroupsRequest) -> Later:
    """Ask the coordinator of each group."""

    def finish(parts: Sequence[DescribedGroup]) -> None:
        if request.include_authorized_operations:
            set_group_operations(call, parts)
        call.answer(DescribeGroupsResponse(groups=list(parts)))

    gathering: Gathering[DescribedGroup] = Gathering(
        len(request.groups), lambda parts: run_when_decided(call, partial(finish, parts))
    )
    for number, group_id in enumerate(request.groups):
        part = gathering.part(number, partial(_failed, group_id))
        try:
            call.node.groups.shard_for(group_id).submit(
                "DescribeGroups", partial(_describe, group_id, call.version), part
            )
        except ApiError as error:
            part.fail(error)
    return gathering.all_requested()


def _describe(group_id: str, version: int, state: GroupsState) -> Decision[DescribedGroup]:
    return Decision((), describe_group(state, group_id, version))


def _failed(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code)
