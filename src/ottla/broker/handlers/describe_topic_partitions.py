"""DescribeTopicPartitions (key 75): topics in pages, with the replicas that may be elected (KIP-966).

Topics are ordered by name, partitions by number. A full page ends with a cursor, where the next page begins.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.authorization.access_checks import TOPIC_DENIED, filter_allowed
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.authorization.authorized_operations import topic_operations
from ottla.broker.handlers.metadata import offline_replicas
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS, check_topic_name
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def describe_topic_partitions_failed(
    request: DescribeTopicPartitionsRequest, version: int, error: ApiError
) -> DescribeTopicPartitionsResponse:
    """Return the error for each requested topic."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code) for topic in request.topics
        ]
    )


@endpoint(ApiKey.DESCRIBE_TOPIC_PARTITIONS, failed=describe_topic_partitions_failed)
def describe_topic_partitions(
    call: Call[BrokerNode], request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return one page."""
    node, cursor = call.node, request.cursor
    names, refused = _names(call, request)
    left = max(min(node.max_described_partitions, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = node.image.topic(name)
        if topic is None:
            if request.topics:  # otherwise the topic was deleted in the meantime
                response.topics.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _topic(call, topic, start, left)
        response.topics.append(described)
        left -= len(described.partitions)
        if start + len(described.partitions) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(described.partitions))
            break
    operations = topic_operations(call, (topic.name or "" for topic in response.topics))
    for described in response.topics:
        described.topic_authorized_operations = operations[described.name or ""]
    response.topics += refused
    return response


def _names(
    call: Call[BrokerNode], request: DescribeTopicPartitionsRequest
) -> tuple[list[str], list[DescribeTopicPartitionsResponseTopic]]:
    """Return the names of the topics from the cursor on, and the answers for topics that the client may not describe.

    If the request names no topics, the latter are left out.
    """
    cursor, topics = request.cursor, call.node.image.topics
    first = cursor.topic_name if cursor is not None else ""
    requested: Collection[str] = {topic.name for topic in request.topics} or topics
    names = sorted(name for name in requested if name >= first)
    if cursor is not None:
        if request.topics and cursor.topic_name not in names:
            raise InvalidRequest(f"the cursor's topic {cursor.topic_name} is not a requested topic")
        if cursor.partition_index < 0:
            raise InvalidRequest(f"the cursor's partition must not be negative, and is {cursor.partition_index}")
    allowed = filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    if len(allowed) == len(names):
        return names, []
    refused = [
        DescribeTopicPartitionsResponseTopic(error_code=TOPIC_DENIED, name=name)
        for name in names
        if request.topics and name not in allowed
    ]
    return [name for name in names if name in allowed], refused


def _topic(call: Call[BrokerNode], topic: Topic, start: int, most: int) -> DescribeTopicPartitionsResponseTopic:
    image, listener = call.node.image, call.client.listener
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, number, topic.partitions[number], listener)
            for number in range(start, min(start + most, len(topic.partitions)))
        ],
    )


def _partition(
    image: Image, number: int, partition: Partition, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    has_leader = image.endpoint(partition.leader, listener) is not None
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except ApiError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=code,
        is_internal=name in INTERNAL_TOPICS,
    )
