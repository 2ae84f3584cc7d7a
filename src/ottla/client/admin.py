"""The admin calls that the command line, other nodes and Spark share.

    async with Cluster("localhost:9092") as cluster:
        await Admin(cluster).create_topic("orders", partitions=3)

A call that changes one resource raises its error. Errors name the topic, partition or node that they are about.
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
"""In place of an offset: delete all records that consumers can see."""


class Admin(TopicCalls, ConfigCalls, ClusterCalls, GroupCalls, TransactionCalls):
    """The admin calls on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of partitions at a timestamp in milliseconds, or at their start or end (see `offsets`)."""
        return await list_offsets(self.cluster, wanted, committed=committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset or HIGH_WATERMARK. Return the new log start offset of each partition."""

        async def ask(node: int, part: PartitionQueries[int]) -> PartitionAnswers[int]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for (name, index), (_, offset) in part.items():
                partition = DeleteRecordsPartition(partition_index=index, offset=offset)
                topics.setdefault(name, DeleteRecordsTopic(name=name)).partitions.append(partition)
            request = DeleteRecordsRequest(
                topics=list(topics.values()), timeout_ms=int(self.cluster.request_timeout_s * 1000)
            )
            answer: DeleteRecordsResponse = await self.cluster.send(request, node=node)
            return {
                (topic.name, partition.partition_index): (
                    error_from_code(partition.error_code, None, partition_label(topic.name, partition.partition_index))
                    if partition.error_code
                    else partition.low_watermark
                )
                for topic in answer.topics
                for partition in topic.partitions
            }

        return await ask_leaders(self.cluster, before, ask)
