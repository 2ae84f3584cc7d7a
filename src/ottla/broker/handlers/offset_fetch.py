"""OffsetFetch (key 9): the committed offsets of groups.

Up to v7, a request names one group, whose error is at the top (from v2 on) or in each partition (v1). From v8 on, it
names many groups, each with an error (KIP-709). From v7 on, a client may require stable offsets, so that it does not
miss the offsets of an open transaction.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.authorization.group_guards import guard_offset_fetch
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.offsets import fetch_offsets
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.storage.state_machine.decision import Decision

_FIRST_OF_MANY: Final = 8
_FIRST_WITH_ERROR: Final = 2
_NONE: Final = -1


def offset_fetch_failed(request: OffsetFetchRequest, version: int, error: ApiError) -> OffsetFetchResponse:
    """Return the error for each group."""
    return _answer(request, version, [_failed(group, error) for group in _groups(request, version)])


@endpoint(ApiKey.OFFSET_FETCH, failed=offset_fetch_failed, guard=guard_offset_fetch)
def offset_fetch(call: Call[BrokerNode], request: OffsetFetchRequest) -> Later:
    """Ask the coordinator of each group. A group with another coordinator fails alone."""
    context, version, require_stable = context_of(call), call.version, request.require_stable
    groups = _groups(request, version)
    gathering: Gathering[OffsetFetchResponseGroup] = Gathering(
        len(groups), lambda parts: call.answer(_answer(request, version, list(parts)))
    )
    for number, group in enumerate(groups):
        part = gathering.part(number, partial(_failed, group))
        try:
            shard = call.node.groups.shard_for(group.group_id)
            shard.submit("OffsetFetch", _FetchOffsets(group, context, require_stable), part)
        except ApiError as error:
            part.fail(error)
    return gathering.all_requested()


class _FetchOffsets:
    """The decision that looks up a group's offsets."""

    __slots__ = ("_context", "_group", "_require_stable")

    def __init__(self, group: OffsetFetchRequestGroup, context: Context, require_stable: bool) -> None:
        self._group = group
        self._context = context
        self._require_stable = require_stable

    def __call__(self, state: GroupsState) -> Decision[OffsetFetchResponseGroup]:
        offsets = fetch_offsets(state, self._group, self._context, require_stable=self._require_stable)
        return Decision((), offsets)


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    if version >= _FIRST_OF_MANY:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _failed(group: OffsetFetchRequestGroup, error: ApiError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)


def _answer(request: OffsetFetchRequest, version: int, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if version >= _FIRST_OF_MANY:
        return OffsetFetchResponse(groups=groups)
    (only,) = groups
    if only.error_code and version < _FIRST_WITH_ERROR:
        return OffsetFetchResponse(topics=_refused(request, only.error_code))
    return OffsetFetchResponse(
        error_code=only.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in only.topics
        ],
    )


def _refused(request: OffsetFetchRequest, code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=_NONE, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
