"""Descriptions of groups of the newer protocols: each group's coordinator describes it, or answers with an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ottla.broker.authorization.access_checks import run_when_decided
from ottla.broker.authorization.authorized_operations import DescribedGroup, set_group_operations
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import Guard, endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import ApiError, GroupIdNotFound, InvalidGroupId
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.storage.state_machine.decision import Decision


class Described(DescribedGroup, Protocol):
    """A response's struct of a group."""

    error_message: str | None


Describe = Callable[[GroupsState, str], Any]


def describes_groups(
    key: ApiKey, group: Callable[..., Any], *, guard: Guard
) -> Callable[[Callable[[Call[BrokerNode]], Describe]], Callable[[Call[Any], Any], Later]]:
    """Register the endpoint of an API that describes groups.

    The decorated function returns what describes one group, or raises if this broker has no groups of that protocol.
    `group` is the struct of the response that describes a group.
    """
    return lambda prepare: _register(key, group, prepare, guard)


def _register(
    key: ApiKey, group: Callable[..., Any], prepare: Callable[[Call[BrokerNode]], Describe], guard: Guard
) -> Callable[[Call[Any], Any], Later]:
    api = BY_KEY[key]

    def failed_part(group_id: str, error: ApiError) -> Described:
        part: Described = group(group_id=group_id, error_code=error.code)
        if isinstance(error, GroupIdNotFound):
            part.error_message = error.message
        return part

    def failed(request: Any, version: int, error: ApiError) -> Any:
        """Return the error for each group."""
        return api.response(groups=[failed_part(group_id, error) for group_id in request.group_ids])

    @endpoint(key, failed=failed, guard=guard)
    def describe_groups(call: Call[BrokerNode], request: Any) -> Later:
        """Ask the coordinator of each group."""
        describe = prepare(call)

        def finish(parts: Sequence[Described]) -> None:
            if request.include_authorized_operations:
                set_group_operations(call, parts)
            call.answer(api.response(groups=list(parts)))

        def decide(group_id: str, state: GroupsState) -> Decision[Described]:
            return Decision((), describe(state, group_id))

        gathering: Gathering[Described] = Gathering(
            len(request.group_ids), lambda parts: run_when_decided(call, partial(finish, parts))
        )
        for number, group_id in enumerate(request.group_ids):
            part = gathering.part(number, partial(failed_part, group_id))
            try:
                if not group_id:
                    raise InvalidGroupId("the group id is empty")
                call.node.groups.shard_for(group_id).submit(api.name, partial(decide, group_id), part)
            except ApiError as error:
                part.fail(error)
        return gathering.all_requested()

    return describe_groups
