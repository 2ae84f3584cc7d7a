"""BeginQuorumEpoch (key 53): a new leader of the Raft quorum announces itself to the voters.

v1 flexible; voters known by id and directory, endpoints (KIP-853).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, UInt16, Uuid


@struct
class PartitionData:
    partition_index: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("1+", default=ZERO_UUID)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)


@struct
class TopicData:
    topic_name: str = since("0+", default="")
    partitions: list[PartitionData] = since("0+", factory=list)


@struct
class LeaderEndpoint:
    name: str = since("1+", default="")
    host: str = since("1+", default="")
    port: UInt16 = since("1+", default=0)


@request(key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: str | None = since("0+", default=None)
    voter_id: Int32 = since("1+", default=-1)
    topics: list[TopicData] = since("0+", factory=list)
    leader_endpoints: list[LeaderEndpoint] = since("1+", factory=list)


@struct
class ResponsePartitionData:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)


@struct
class ResponseTopicData:
    topic_name: str = since("0+", default="")
    partitions: list[ResponsePartitionData] = since("0+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("1+", default=0)
    host: str = since("1+", default="")
    port: UInt16 = since("1+", default=0)


@response(key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: Int16 = since("0+", default=0)
    topics: list[ResponseTopicData] = since("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list, tag=0)
