"""DescribeLogDirs (key 35): the replicas and the disk space of each log directory (KIP-113, KIP-827).

v3 an error for the whole request · v4 disk space · v5 cordoned directories, which get no new replicas (KIP-1066).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import StorageFailed
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.log.partition_log import PartitionLog

_UNKNOWN_LAG = -1
_PARTITIONS_BETWEEN_YIELDS = 500
"""Describing this many partitions takes about a millisecond; then other requests run."""


@endpoint(ApiKey.DESCRIBE_LOG_DIRS, guard=of_cluster(Operation.DESCRIBE))
async def describe_log_dirs(call: Call[BrokerNode], request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the replicas of all partitions, or of the requested ones, in each directory."""
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    response = DescribeLogDirsResponse()
    call.node.partitions.make_planned()  # so that their logs are described, too
    for directory in call.node.partitions.logs.directories:
        response.results.append(await _directory(call.node, directory, requested))
    return response


async def _directory(
    node: BrokerNode, directory: LogDirectory, requested: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=str(Path(directory.path).absolute()))
    try:
        if directory.failure is not None:
            raise directory.failure
        result.total_bytes, result.usable_bytes = node.space_of(directory.path)
        topics: dict[str, DescribeLogDirsTopic] = {}
        for is_future, logs in ((False, directory.logs), (True, directory.futures)):
            described = [log for name, log in logs.items() if requested is None or name in requested]
            for number, log in enumerate(described, start=1):
                topic = topics.setdefault(log.topic, DescribeLogDirsTopic(name=log.topic))
                topic.partitions.append(_partition(node, log, is_future))
                if number % _PARTITIONS_BETWEEN_YIELDS == 0:
                    await asyncio.sleep(0)
        result.topics = list(topics.values())
    except OSError:
        return DescribeLogDirsResult(log_dir=result.log_dir, error_code=StorageFailed.code)
    result.is_cordoned = directory.is_cordoned and node.image.features.metadata_version >= CORDONED_LOG_DIRS
    return result


def _partition(node: BrokerNode, log: PartitionLog, is_future: bool) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size,
        offset_lag=_lag(node, log, is_future),
        is_future_key=is_future,
    )


def _lag(node: BrokerNode, log: PartitionLog, is_future: bool) -> int:
    """Return how many offsets a log is behind its leader, or a future log behind the current one."""
    partition = node.partitions.find(log.topic, log.partition)
    if partition is None:
        return _UNKNOWN_LAG
    if is_future:
        return partition.log.log_end_offset - log.log_end_offset
    return max(partition.log.high_watermark - log.log_end_offset, 0)
