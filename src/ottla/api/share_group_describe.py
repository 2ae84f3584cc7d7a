"""ShareGroupDescribe (key 77): share groups with their members, and what these read (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.api.authorized import tell_group_operations
from ottla.api.call import Call, Later
from ottla.api.endpoint import endpoint
from ottla.api.gathering import Gathering
from ottla.api.group_context import context_of
from ottla.api.node import BrokerNode
from ottla.api.share_group_heartbeat import check_enabled
from ottla.errors import ApiError, GroupIdNotFound, InvalidGroupId
from ottla.groups.context import Context
from ottla.groups.share.describing import describe_group
from ottla.groups.state import GroupsState
from ottla.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.replicated.decision import Decision


def describe_failed(request: ShareGroupDescribeRequest, version: int, error: ApiError) -> ShareGroupDescribeResponse:
    """The error for each group."""
    return ShareGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])


@endpoint(77, failed=describe_failed)
def share_group_describe(call: Call[BrokerNode], request: ShareGroupDescribeRequest) -> Later:
    """Ask the coordinator of each group."""
    check_enabled(call)
    context = context_of(call)

    def finish(parts: Sequence[DescribedGroup]) -> None:
        if request.include_authorized_operations:
            tell_group_operations(call, parts)
        call.answer(ShareGroupDescribeResponse(groups=list(parts)))

    gathering: Gathering[DescribedGroup] = Gathering(len(request.group_ids), finish)
    for number, group_id in enumerate(request.group_ids):
        part = gathering.part(number, partial(_failed, group_id))
        try:
            if not group_id:
                raise InvalidGroupId("a group must have a name")
            shard = call.node.groups.of(group_id)
            shard.submit("ShareGroupDescribe", partial(_describe, group_id, context), part)
        except ApiError as error:
            part.fail(error)
    return gathering.begun()


def _describe(group_id: str, context: Context, state: GroupsState) -> Decision[DescribedGroup]:
    return Decision((), describe_group(state, group_id, context))


def _failed(group_id: str, error: ApiError) -> DescribedGroup:
    told = DescribedGroup(group_id=group_id, error_code=error.code)
    if isinstance(error, GroupIdNotFound):
        told.error_message = error.message
    return told
