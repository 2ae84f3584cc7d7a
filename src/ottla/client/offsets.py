"""Where a partition begins and ends, and which offset it had at a time."""

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
"""Where the next record will be: the high watermark, or for committed records the last stable offset."""
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""The record with the latest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4

NO_OFFSET: Final = -1


class ListedOffset(NamedTuple):
    """An offset, the timestamp of its record if it was looked up by one, and the epoch of its leader."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """The offset of each partition at a time in milliseconds, or at LATEST, EARLIEST or MAX_TIMESTAMP.

    That is the first record of that time or later; NO_OFFSET if there is none.
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
            (topic.name, each.partition_index): (
                error_from_code(each.error_code, None, partition_label(topic.name, each.partition_index))
                if each.error_code
                else ListedOffset(each.offset, each.timestamp, each.leader_epoch)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    return await ask_leaders(cluster, wanted, ask)
