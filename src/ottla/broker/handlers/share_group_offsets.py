"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (keys 90 to 92): the start offsets of
share groups (KIP-932).

v1 of DescribeShareGroupOffsets has the lag: the records from the start offset on that are not complete (KIP-1226).
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
    """Return the error for each group."""
    return DescribeShareGroupOffsetsResponse(groups=[_failed(group.group_id, error) for group in request.groups])


@endpoint(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, failed=describe_failed, guard=guard_describe_share_group_offsets)
async def describe_share_group_offsets(
    call: Call[BrokerNode], request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group."""
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
    call: Call[BrokerNode], group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    node, image = call.node, call.node.image
    missing = []
    topics: dict[bytes, list[int]] = {}
    if group.topics is None:
        initialized = await node.share_groups.initialized(group.group_id)
        topics = {
            topic_id: numbers for topic_id, numbers in initialized.items() if image.topic_by_id(topic_id) is not None
        }
    for requested in group.topics or ():
        topic = image.topic(requested.topic_name)
        if topic is not None:
            topics[topic.id] = list(requested.partitions)
        else:
            missing.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=requested.topic_name,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=NO_START)
                        for number in requested.partitions
                    ],
                )
            )
    described = await _describe_topics(call, group.group_id, topics, image)
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=[*described, *missing])


async def _describe_topics(
    call: Call[BrokerNode], group_id: str, topics: PartitionsByTopic, image: Image
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    summaries = await call.node.share_groups.summaries(group_id, topics)
    started = [
        where
        for where, summary in summaries.items()
        if not isinstance(summary, ApiError)
        and summary.start_offset != NO_START
        and summary.delivery_complete_count != NO_COUNT
    ]
    ends = await call.node.share_groups.end_offsets(image, started)
    described = []
    for topic_id, numbers in topics.items():
        topic = image.topic_by_id(topic_id)
        assert topic is not None
        partitions = [_partition((topic_id, number), summaries, ends) for number in numbers]
        described.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic_id, partitions=partitions)
        )
    return described


def _partition(
    where: TopicIdPartition, summaries: dict[TopicIdPartition, Any], ends: dict[TopicIdPartition, int | ApiError]
) -> DescribeShareGroupOffsetsResponsePartition:
    summary, end = summaries[where], ends.get(where)
    answer = DescribeShareGroupOffsetsResponsePartition(partition_index=where[1])
    if isinstance(end, ApiError):
        answer.error_code, answer.error_message = end.code, end.message
        return answer
    # An unreadable state is shown like a missing one, as with committed offsets.
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
    """Set the start offsets of a group without members."""
    check_enabled(call)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    altered = await call.node.share_groups.alter(request.group_id, request.topics)
    return AlterShareGroupOffsetsResponse(responses=altered.topics)


@endpoint(ApiKey.DELETE_SHARE_GROUP_OFFSETS, guard=guard_delete_share_group_offsets)
async def delete_share_group_offsets(
    call: Call[BrokerNode], request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the offsets of a group without members."""
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
