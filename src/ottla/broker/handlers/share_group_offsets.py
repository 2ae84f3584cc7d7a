"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (keys 90 to 92): where share groups
stand in their partitions (KIP-932).

v1 of DescribeShareGroupOffsets tells the lag: how many records lie behind the start that are not done with (KIP-1226).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.group_guards import (
    guard_alter_share_group_offsets,
    guard_delete_share_group_offsets,
    guard_describe_share_group_offsets,
)
from ottla.broker.handlers.share_group_heartbeat import check_enabled
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.groups.share.partitions import PartitionsByTopic
from ottla.coordinators.share.sessions import TopicIdPartition
from ottla.coordinators.share.state import NO_COUNT, NO_START
from ottla.metadata.image.image import Image
from ottla.protocol.errors import ApiError, InvalidGroupId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.rpc.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.rpc.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_NO_LAG: Final = -1


def describe_failed(
    request: DescribeShareGroupOffsetsRequest, version: int, error: ApiError
) -> DescribeShareGroupOffsetsResponse:
    """The error for each group."""
    return DescribeShareGroupOffsetsResponse(groups=[_failed(group.group_id, error) for group in request.groups])


@endpoint(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, failed=describe_failed, guard=guard_describe_share_group_offsets)
async def describe_share_group_offsets(
    call: Call[BrokerNode], request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Look at each group."""
    check_enabled(call)
    groups = []
    for group in request.groups:
        try:
            groups.append(await _describe(call, group))
        except ApiError as error:
            groups.append(_failed(group.group_id, error))
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _failed(group_id: str, error: ApiError) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=error.code, error_message=error.message)


async def _describe(
    call: Call[BrokerNode], asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    node, image = call.node, call.node.image
    missing = []
    topics: dict[bytes, list[int]] = {}
    if asked.topics is None:
        known = await node.share_groups.initialized(asked.group_id)
        topics = {topic_id: numbers for topic_id, numbers in known.items() if image.topic_by_id(topic_id) is not None}
    for each in asked.topics or ():
        topic = image.topic(each.topic_name)
        if topic is not None:
            topics[topic.id] = list(each.partitions)
        else:
            missing.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=each.topic_name,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=NO_START)
                        for number in each.partitions
                    ],
                )
            )
    found = await _described(call, asked.group_id, topics, image)
    return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=[*found, *missing])


async def _described(
    call: Call[BrokerNode], group_id: str, topics: PartitionsByTopic, image: Image
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    summaries = await call.node.share_groups.summaries(group_id, topics)
    begun = [
        where
        for where, summary in summaries.items()
        if not isinstance(summary, ApiError)
        and summary.start_offset != NO_START
        and summary.delivery_complete_count != NO_COUNT
    ]
    ends = await call.node.share_groups.ends(image, begun)
    found = []
    for topic_id, numbers in topics.items():
        topic = image.topic_by_id(topic_id)
        assert topic is not None
        partitions = [_partition((topic_id, number), summaries, ends) for number in numbers]
        found.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic_id, partitions=partitions)
        )
    return found


def _partition(
    where: TopicIdPartition, summaries: dict[TopicIdPartition, Any], ends: dict[TopicIdPartition, int | ApiError]
) -> DescribeShareGroupOffsetsResponsePartition:
    summary, end = summaries[where], ends.get(where)
    answer = DescribeShareGroupOffsetsResponsePartition(partition_index=where[1])
    if isinstance(end, ApiError):
        answer.error_code, answer.error_message = end.code, end.message
        return answer
    # What cannot be read is as what is not there, as for offsets that nobody committed.
    answer.start_offset, answer.lag = NO_START, _NO_LAG
    if not isinstance(summary, ApiError):
        answer.start_offset, answer.leader_epoch = summary.start_offset, summary.leader_epoch
        if end is not None:
            answer.lag = end - summary.start_offset - summary.delivery_complete_count
    return answer


@endpoint(ApiKey.ALTER_SHARE_GROUP_OFFSETS, guard=guard_alter_share_group_offsets)
async def alter_share_group_offsets(
    call: Call[BrokerNode], request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set where a group without members begins."""
    check_enabled(call)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    altered = await call.node.share_groups.alter(request.group_id, request.topics)
    return AlterShareGroupOffsetsResponse(responses=altered.topics)


@endpoint(ApiKey.DELETE_SHARE_GROUP_OFFSETS, guard=guard_delete_share_group_offsets)
async def delete_share_group_offsets(
    call: Call[BrokerNode], request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Let a group without members forget topics."""
    check_enabled(call)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    names = [topic.topic_name for topic in request.topics]
    deletion, failed = await call.node.share_groups.delete_offsets(request.group_id, names)
    image = call.node.image
    answers = list(deletion.failed)
    errors = {topic_id: error for (topic_id, _), error in failed.items()}
    for topic_id in deletion.states:
        topic = image.topic_by_id(topic_id)
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name="" if topic is None else topic.name, topic_id=topic_id)
        error = errors.get(topic_id)
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return DeleteShareGroupOffsetsResponse(responses=answers)
