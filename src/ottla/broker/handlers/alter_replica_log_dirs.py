"""AlterReplicaLogDirs (key 34): move replicas of this broker between its log directories (KIP-113).

The answer is sent when the moves have begun. DescribeLogDirs shows their progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import (
    NONE,
    ApiError,
    InvalidReplicaAssignment,
    InvalidTopic,
    LogDirNotFound,
    NotLeader,
    ReplicaNotAvailable,
    StorageFailed,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.storage.directories.log_directory import LogDirectory

_MAX_FILE_NAME: Final = 255
_FUTURE_SUFFIX: Final = len(".") + 32 + len("-future")


def alter_replica_log_dirs_failed(
    request: AlterReplicaLogDirsRequest, version: int, error: ApiError
) -> AlterReplicaLogDirsResponse:
    """Return the error for each partition."""
    return _response(dict.fromkeys(_requested_paths(request), error.code))


@endpoint(ApiKey.ALTER_REPLICA_LOG_DIRS, failed=alter_replica_log_dirs_failed, guard=of_cluster(Operation.ALTER))
def alter_replica_log_dirs(call: Call[BrokerNode], request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Begin to move each replica."""
    return _response({name: _move(call.node, *name, path) for name, path in _requested_paths(request).items()})


def _requested_paths(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    """Return the requested directory of each partition. If a partition is named twice, the last one counts."""
    return {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _move(node: BrokerNode, topic: str, index: int, path: str) -> int:
    try:
        if len(f"{topic}-{index}") + _FUTURE_SUFFIX > _MAX_FILE_NAME:
            raise InvalidTopic(f"the name of topic {topic} is too long for the directory of a move")
        directory = _directory(node, path)
        if directory.failure is not None:
            raise StorageFailed(f"{path} is offline: {directory.failure}")
        if directory.is_cordoned:
            raise InvalidReplicaAssignment(f"{path} is cordoned")
        node.moves.start(node.partitions.get(topic, index), directory)
    except NotLeader:
        return ReplicaNotAvailable.code
    except ApiError as error:
        return error.code
    except OSError:
        return StorageFailed.code
    return NONE


def _directory(node: BrokerNode, path: str) -> LogDirectory:
    for directory in node.partitions.logs.directories:
        if str(Path(directory.path).absolute()) == path:
            return directory
    raise LogDirNotFound(f"this broker has no log directory {path}")


def _response(codes: dict[tuple[str, int], int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes.items():
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
