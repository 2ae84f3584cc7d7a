"""DescribeQuorum (key 55): the leader, the voters and the observers of the Raft quorum, and their log end offsets.

v1 when each last fetched and was caught up (KIP-836) · v2 directories, endpoints and error messages (KIP-853).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid


@struct
class PartitionData:
    partition_index: Int32 = since("0+", default=0)


@struct
class TopicData:
    topic_name: str = since("0+", default="")
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData] = since("0+", factory=list)


@struct
class ReplicaState:
    replica_id: Int32 = since("0+", default=0)
    replica_directory_id: Uuid = since("2+", default=ZERO_UUID)
    log_end_offset: Int64 = since("0+", default=0)
    last_fetch_timestamp: Int64 = since("1+", default=-1)
    last_caught_up_timestamp: Int64 = since("1+", default=-1)


@struct
class ResponsePartitionData:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("2+", default="")
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    high_watermark: Int64 = since("0+", default=0)
    current_voters: list[ReplicaState] = since("0+", factory=list)
    observers: list[ReplicaState] = since("0+", factory=list)


@struct
class ResponseTopicData:
    topic_name: str = since("0+", default="")
    partitions: list[ResponsePartitionData] = since("0+", factory=list)


@struct
class Listener:
    name: str = since("2+", default="")
    host: str = since("2+", default="")
    port: UInt16 = since("2+", default=0)


@struct
class Node:
    node_id: Int32 = since("2+", default=0)
    listeners: list[Listener] = since("2+", factory=list)


@response(key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("2+", default="")
    topics: list[ResponseTopicData] = since("0+", factory=list)
    nodes: list[Node] = since("2+", factory=list)
