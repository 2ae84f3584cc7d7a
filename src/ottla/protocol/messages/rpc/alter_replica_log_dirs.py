"""AlterReplicaLogDirs (key 34): move replicas to another log directory of the same broker.

v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class AlterReplicaLogDirTopic:
    name: str = since("1+", default="")
    partitions: list[Int32] = since("1+", factory=list)


@struct
class AlterReplicaLogDir:
    path: str = since("1+", default="")
    topics: list[AlterReplicaLogDirTopic] = since("1+", factory=list)


@request(key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = since("1+", factory=list)


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = since("1+", default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = since("1+", factory=list)


@response(key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = since("1+", factory=list)
