"""Admin calls about the cluster: its brokers, their disks, its features, its quorum."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from ottla.client.addresses import Address
from ottla.client.cluster import Cluster
from ottla.client.metadata import TopicPartition
from ottla.client.retries import error_from_code, raise_for_code
from ottla.protocol.errors import ApiError, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.rpc.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.rpc.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


class Broker(NamedTuple):
    """A broker that is registered; a fenced one takes no requests yet, or no more."""

    id: int
    address: Address
    rack: str | None
    is_fenced: bool


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    """Since KRaft some broker: controllers are not for clients."""
    brokers: tuple[Broker, ...]


class Feature(NamedTuple):
    """What a broker could do, and what the cluster agreed on; a level of 0 is off."""

    name: str
    lowest: int
    highest: int
    level: int


class Replica(NamedTuple):
    """What a log directory holds of a partition."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool
    """It is on its way here from another directory."""


class LogDir(NamedTuple):
    path: str
    error: ApiError | None
    total_bytes: int
    usable_bytes: int
    """Bytes of the disk; -1 where the broker does not say."""
    replicas: tuple[Replica, ...]


class QuorumMember(NamedTuple):
    """A node of the quorum and how far it is; times are -1 where the leader does not know."""

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    is_voter: bool


class Quorum(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]
    """Voters first."""


class ClusterCalls:
    """The part of `Admin` that is about the cluster."""

    cluster: Cluster

    async def describe_cluster(self, *, fenced: bool = True) -> ClusterDescription:
        """The brokers of the cluster; fenced ones too where the broker can tell."""

        async def attempt() -> ClusterDescription:
            request = DescribeClusterRequest(include_fenced_brokers=fenced)
            answer: DescribeClusterResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, answer.error_message, "cluster")
            brokers = sorted(
                Broker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
                for each in answer.brokers
            )
            return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(brokers))

        return await self.cluster.retry(attempt)

    async def features(self) -> list[Feature]:
        """What the cluster can do and does, by name."""
        connection = await self.cluster.retry(self.cluster.any_connection)
        version = connection.version_of(ApiKey.API_VERSIONS)
        if version < 3:
            raise UnsupportedVersion(f"{connection.address} is too old to tell its features")
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        answer: ApiVersionsResponse = await connection.send(request, version=version)
        raise_for_code(answer.error_code, None, "features")
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return sorted(
            Feature(each.name, each.min_version, each.max_version, levels.get(each.name, 0))
            for each in answer.supported_features
        )

    async def log_dirs(
        self, *, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, list[LogDir]]:
        """The log directories of brokers, or of all, with the replicas of topics, or of all."""
        if brokers is None:
            await self.cluster.retry(self.cluster.refresh)
            brokers = self.cluster.nodes
        wanted = None
        if topics is not None:
            known = [await self.cluster.topic(name) for name in topics]
            wanted = [DescribableLogDirTopic(topic=each.name, partitions=list(each.partitions)) for each in known]

        async def ask(broker: int) -> list[LogDir]:
            request = DescribeLogDirsRequest(topics=wanted)
            answer: DescribeLogDirsResponse = await self.cluster.send(request, node=broker)
            raise_for_code(answer.error_code, None, f"log directories of broker {broker}")
            return _log_dirs(answer)

        ids = sorted(brokers)
        answers = await asyncio.gather(*(self.cluster.retry(partial(ask, broker)) for broker in ids))
        return dict(zip(ids, answers, strict=True))

    async def quorum(self) -> Quorum:
        """Who leads the metadata log, and how far the others are."""
        wanted = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])

        async def attempt() -> Quorum:
            answer: DescribeQuorumResponse = await self.cluster.send(DescribeQuorumRequest(topics=[wanted]))
            raise_for_code(answer.error_code, answer.error_message, "quorum")
            found = answer.topics[0].partitions[0]
            raise_for_code(found.error_code, found.error_message, "quorum")
            voters = [_member(each, is_voter=True) for each in found.current_voters]
            observers = [_member(each, is_voter=False) for each in found.observers]
            members = (*sorted(voters), *sorted(observers))
            return Quorum(found.leader_id, found.leader_epoch, found.high_watermark, members)

        return await self.cluster.retry(attempt)


def _log_dirs(answer: DescribeLogDirsResponse) -> list[LogDir]:
    return [
        LogDir(
            each.log_dir,
            error_from_code(each.error_code, None, each.log_dir) if each.error_code else None,
            each.total_bytes,
            each.usable_bytes,
            tuple(
                sorted(
                    Replica(
                        (topic.name, part.partition_index), part.partition_size, part.offset_lag, part.is_future_key
                    )
                    for topic in each.topics
                    for part in topic.partitions
                )
            ),
        )
        for each in sorted(answer.results, key=lambda each: each.log_dir)
    ]


def _member(state: ReplicaState, *, is_voter: bool) -> QuorumMember:
    return QuorumMember(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        is_voter,
    )
