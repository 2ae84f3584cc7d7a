"""AssignReplicasToDirs (key 73): a broker reports to the controller which log directory holds each replica."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class PartitionData:
    partition_index: Int32 = since("0+", default=0)


@struct
class TopicData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@struct
class DirectoryData:
    id: Uuid = since("0+", default=ZERO_UUID)
    topics: list[TopicData] = since("0+", factory=list)


@request(key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=-1)
    directories: list[DirectoryData] = since("0+", factory=list)


@struct
class ResponsePartitionData:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)


@struct
class ResponseTopicData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[ResponsePartitionData] = since("0+", factory=list)


@struct
class ResponseDirectoryData:
    id: Uuid = since("0+", default=ZERO_UUID)
    topics: list[ResponseTopicData] = since("0+", factory=list)


@response(key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    directories: list[ResponseDirectoryData] = since("0+", factory=list)
