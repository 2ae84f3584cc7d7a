"""Commits the finished offsets of a query for its consumer group, so that lag monitors see the query.

The query assigns partitions to itself. For the group coordinator it is a simple consumer, without a member id and a
generation; a group with members rejects such a commit.
"""

from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.retries import raise_for_code
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.spark.connector.coordinators import GROUP, find_coordinator

_LAST_WITH_NAMES: Final = 9
_TIMEOUT_S: Final = 5.0
"""A commit that fails is not retried for longer, because the next one replaces it."""


async def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group; raise the first permanent error, with its topic and partition."""
    if not offsets:
        return
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))

    async def attempt() -> None:
        node = await find_coordinator(cluster, group, GROUP)
        connection = await cluster.connection(node)
        version = connection.version_of(ApiKey.OFFSET_COMMIT, at_most=_LAST_WITH_NAMES)
        answer: OffsetCommitResponse = await connection.send(
            request, version=version, timeout_s=cluster.request_timeout_s
        )
        for topic in answer.topics:
            for result in topic.partitions:
                place = partition_label(topic.name, result.partition_index)
                raise_for_code(result.error_code, None, f"commit for group {group!r}, {place}")

    await cluster.retry(attempt, timeout_s=_TIMEOUT_S)
