"""EndQuorumEpoch (key 54): a leader of the Raft quorum resigns and names its preferred successors.

v1 flexible; successors known by id and directory, endpoints (KIP-853).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, UInt16, Uuid


@struct
class ReplicaInfo:
    candidate_id: Int32 = since("1+", default=0)
    candidate_directory_id: Uuid = since("1+", default=ZERO_UUID)


@struct
class PartitionData:
    partition_index: Int32 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    preferred_successors: list[Int32] = since("0", factory=list)
    preferred_candidates: list[ReplicaInfo] = since("1+", factory=list)


@struct
class TopicData:
    topic_name: str = since("0+", default="")
    partitions: list[PartitionData] = since("0+", factory=list)


@struct
class LeaderEndpoint:
    name: str = since("1+", default="")
    host: str = since("1+", default="")
    port: UInt16 = since("1+", default=0)


@request(key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    cluster_id: str | None = since("0+", default=None)
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


@response(key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    error_code: Int16 = since("0+", default=0)
    topics: list[ResponseTopicData] = since("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list, tag=0)
