"""ListGroups (key 16): the groups that this broker coordinates. v4 filters by state (KIP-518), v5 by type (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.authorization.group_guards import guard_list_groups
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.groups.describing import list_groups
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.storage.state_machine.decision import Decision


@endpoint(ApiKey.LIST_GROUPS, guard=guard_list_groups)
def list_all_groups(call: Call[BrokerNode], request: ListGroupsRequest) -> Later:
    """Ask every coordinator of this broker. If one is still loading, answer with its error: no group must seem gone."""
    shards = list(call.node.groups)

    def finish(parts: Sequence[list[ListedGroup] | ApiError]) -> None:
        groups: list[ListedGroup] = []
        for part in parts:
            if isinstance(part, ApiError):
                call.answer(ListGroupsResponse(error_code=part.code))
                return
            groups.extend(part)
        call.answer(ListGroupsResponse(groups=groups))

    def decide(state: GroupsState) -> Decision[list[ListedGroup]]:
        return Decision((), list(list_groups(state, request)))

    gathering: Gathering[list[ListedGroup] | ApiError] = Gathering(len(shards), finish)
    for number, shard in enumerate(shards):
        part = gathering.part(number, lambda error: error)
        try:
            shard.submit("ListGroups", decide, part)
        except ApiError as error:
            part.fail(error)
    return gathering.all_requested()
