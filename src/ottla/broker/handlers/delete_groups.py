"""DeleteGroups (key 42): delete groups that have no members, with their offsets."""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization.group_guards import guard_delete_groups
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.groups.describing import delete_group
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.storage.state_machine.decision import Decision


def delete_groups_failed(request: DeleteGroupsRequest, version: int, error: ApiError) -> DeleteGroupsResponse:
    """Return the error for each group."""
    return DeleteGroupsResponse(results=[_failed(group_id, error) for group_id in request.groups_names])


@endpoint(ApiKey.DELETE_GROUPS, failed=delete_groups_failed, guard=guard_delete_groups)
def delete_groups(call: Call[BrokerNode], request: DeleteGroupsRequest) -> Later:
    """Let the coordinator of each group decide."""
    group_ids = list(dict.fromkeys(request.groups_names))
    gathering: Gathering[DeletableGroupResult] = Gathering(
        len(group_ids), lambda parts: call.answer(DeleteGroupsResponse(results=list(parts)))
    )
    for number, group_id in enumerate(group_ids):
        part = gathering.part(number, partial(_failed, group_id))
        try:
            shard = call.node.groups.shard_for(group_id)
            if isinstance(shard.state.groups.get(group_id), ShareGroup):
                call.node.share_groups.delete(group_id, part)
            else:
                shard.submit("DeleteGroups", partial(_delete, group_id), part)
        except ApiError as error:
            part.fail(error)
    return gathering.all_requested()


def _delete(group_id: str, state: GroupsState) -> Decision[DeletableGroupResult]:
    return delete_group(state, group_id)


def _failed(group_id: str, error: ApiError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code)
