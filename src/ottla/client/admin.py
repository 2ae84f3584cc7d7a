"""The admin calls that command line, console and pipeline share.

    async with Cluster("localhost:9092") as cluster:
        await Admin(cluster).create_topic("orders", partitions=3)

Calls that change one thing raise what went wrong with it. Errors say which topic, partition or node they are about.
"""

from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.cluster_calls import ClusterCalls
from ottla.client.config_calls import ConfigCalls
from ottla.client.group_calls import GroupCalls
from ottla.client.leader_requests import PartitionAnswers, PartitionQueries, ask_leaders
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.offsets import ListedOffset, list_offsets
from ottla.client.retries import error_from_code
from ottla.client.topic_calls import TopicCalls
from ottla.client.transaction_calls import TransactionCalls
from ottla.protocol.messages.rpc.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1
"""Instead of an offset: all that consumers can see."""


class Admin(TopicCalls, ConfigCalls, ClusterCalls, GroupCalls, TransactionCalls):
    """What an operator asks of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """The offsets of partitions at a time in milliseconds, or at one of their ends (see `offsets`)."""
        return await list_offsets(self.cluster, wanted, committed=committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset, or HIGH_WATERMARK; answers where each partition begins now."""

        async def ask(node: int, part: PartitionQueries[int]) -> PartitionAnswers[int]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for (name, index), (_, offset) in part.items():
                wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
                topics.setdefault(name, DeleteRecordsTopic(name=name)).partitions.append(wanted)
            request = DeleteRecordsRequest(
                topics=list(topics.values()), timeout_ms=int(self.cluster.request_timeout_s * 1000)
            )
            answer: DeleteRecordsResponse = await self.cluster.send(request, node=node)
            return {
                (topic.name, each.partition_index): (
                    error_from_code(each.error_code, None, partition_label(topic.name, each.partition_index))
                    if each.error_code
                    else each.low_watermark
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await ask_leaders(self.cluster, before, ask)
