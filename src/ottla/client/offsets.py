"""Looks up offsets of partitions: at their start, at their end, or at a timestamp."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.leader_requests import PartitionAnswers, PartitionQueries, ask_leaders
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.retries import error_from_code
from ottla.protocol.messages.rpc.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
"""The high watermark, or for read_committed the last stable offset."""
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""The offset of the record with the latest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4

NO_OFFSET: Final = -1


class ListedOffset(NamedTuple):
    """An offset, its leader epoch, and the record's timestamp if it was looked up by timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of each partition at a timestamp in milliseconds, or at LATEST, EARLIEST or MAX_TIMESTAMP.

    The offset at a timestamp is that of the first record with this timestamp or a later one, or NO_OFFSET.
    """

    async def ask(node: int, part: PartitionQueries[int]) -> PartitionAnswers[ListedOffset]:
        topics: dict[str, ListOffsetsTopic] = {}
        for (topic, partition), (leader, timestamp) in part.items():
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=partition, current_leader_epoch=leader.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=list(topics.values()),
            timeout_ms=int(cluster.request_timeout_s * 1000),
        )
        answer: ListOffsetsResponse = await cluster.send(request, node=node)
        return {
            (topic.name, partition.partition_index): (
                error_from_code(partition.error_code, None, partition_label(topic.name, partition.partition_index))
                if partition.error_code
                else ListedOffset(partition.offset, partition.timestamp, partition.leader_epoch)
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    return await ask_leaders(cluster, wanted, ask)
