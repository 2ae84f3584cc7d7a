"""Admin calls about the cluster: brokers, log directories, features and the quorum."""

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
    """A registered broker. A fenced broker serves no clients."""

    id: int
    address: Address
    rack: str | None
    is_fenced: bool


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    """With KRaft, a random broker: clients do not see controllers."""
    brokers: tuple[Broker, ...]


class Feature(NamedTuple):
    """A feature: the levels that a broker supports, and the finalized level. Level 0 means off."""

    name: str
    lowest: int
    highest: int
    level: int


class Replica(NamedTuple):
    """A replica in a log directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it is still being copied from another directory."""


class LogDir(NamedTuple):
    path: str
    error: ApiError | None
    total_bytes: int
    usable_bytes: int
    """The usable bytes of the disk. Both are -1 if the broker does not report them."""
    replicas: tuple[Replica, ...]


class QuorumMember(NamedTuple):
    """A voter or observer of the quorum. Times are -1 if the leader does not know them."""

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
    """The calls of `Admin` about the cluster."""

    cluster: Cluster

    async def describe_cluster(self, *, fenced: bool = True) -> ClusterDescription:
        """Describe the cluster and its brokers. `fenced` includes fenced brokers, if the broker supports that."""

        async def attempt() -> ClusterDescription:
            request = DescribeClusterRequest(include_fenced_brokers=fenced)
            answer: DescribeClusterResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, answer.error_message, "cluster")
            brokers = sorted(
                Broker(broker.broker_id, Address(broker.host, broker.port), broker.rack, broker.is_fenced)
                for broker in answer.brokers
            )
            return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(brokers))

        return await self.cluster.retry(attempt)

    async def features(self) -> list[Feature]:
        """Return the features of the cluster, sorted by name."""
        connection = await self.cluster.retry(self.cluster.any_connection)
        version = connection.version_of(ApiKey.API_VERSIONS)
        if version < 3:
            raise UnsupportedVersion(
                f"{connection.address} is too old to report its features: ApiVersions v3 is needed, it has v{version}"
            )
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        answer: ApiVersionsResponse = await connection.send(request, version=version)
        raise_for_code(answer.error_code, None, "features")
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return sorted(
            Feature(feature.name, feature.min_version, feature.max_version, levels.get(feature.name, 0))
            for feature in answer.supported_features
        )

    async def log_dirs(
        self, *, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, list[LogDir]]:
        """Return the log directories by broker, with their replicas. Omitted brokers or topics mean all of them."""
        if brokers is None:
            await self.cluster.retry(self.cluster.refresh)
            brokers = self.cluster.nodes
        wanted = None
        if topics is not None:
            wanted = [
                DescribableLogDirTopic(topic=name, partitions=list((await self.cluster.topic(name)).partitions))
                for name in topics
            ]

        async def ask(broker: int) -> list[LogDir]:
            request = DescribeLogDirsRequest(topics=wanted)
            answer: DescribeLogDirsResponse = await self.cluster.send(request, node=broker)
            raise_for_code(answer.error_code, None, f"log directories of broker {broker}")
            return _log_dirs(answer)

        ids = sorted(brokers)
        answers = await asyncio.gather(*(self.cluster.retry(partial(ask, broker)) for broker in ids))
        return dict(zip(ids, answers, strict=True))

    async def quorum(self) -> Quorum:
        """Return the leader of the quorum and the progress of its voters and observers."""
        wanted = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])

        async def attempt() -> Quorum:
            answer: DescribeQuorumResponse = await self.cluster.send(DescribeQuorumRequest(topics=[wanted]))
            raise_for_code(answer.error_code, answer.error_message, "quorum")
            log = answer.topics[0].partitions[0]
            raise_for_code(log.error_code, log.error_message, "quorum")
            voters = [_member(state, is_voter=True) for state in log.current_voters]
            observers = [_member(state, is_voter=False) for state in log.observers]
            members = (*sorted(voters), *sorted(observers))
            return Quorum(log.leader_id, log.leader_epoch, log.high_watermark, members)

        return await self.cluster.retry(attempt)


def _log_dirs(answer: DescribeLogDirsResponse) -> list[LogDir]:
    return [
        LogDir(
            result.log_dir,
            error_from_code(result.error_code, None, result.log_dir) if result.error_code else None,
            result.total_bytes,
            result.usable_bytes,
            tuple(
                sorted(
                    Replica(
                        (topic.name, part.partition_index), part.partition_size, part.offset_lag, part.is_future_key
                    )
                    for topic in result.topics
                    for part in topic.partitions
                )
            ),
        )
        for result in sorted(answer.results, key=lambda result: result.log_dir)
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
