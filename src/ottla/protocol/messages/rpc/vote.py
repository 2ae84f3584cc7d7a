"""Vote (key 52): a candidate of the Raft quorum requests a vote.

v1 voters known by id and directory, endpoints of the leader (KIP-853) · v2 pre-votes (KIP-996).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid


@struct
class PartitionData:
    partition_index: Int32 = since("0+", default=0)
    replica_epoch: Int32 = since("0+", default=0)
    replica_id: Int32 = since("0+", default=0)
    replica_directory_id: Uuid = since("1+", default=ZERO_UUID)
    voter_directory_id: Uuid = since("1+", default=ZERO_UUID)
    last_offset_epoch: Int32 = since("0+", default=0)
    last_offset: Int64 = since("0+", default=0)
    pre_vote: bool = since("2+", default=False)


@struct
class TopicData:
    topic_name: str = since("0+", default="")
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.VOTE, versions="0-2", flexible="0+")
class VoteRequest:
    cluster_id: str | None = since("0+", default=None)
    voter_id: Int32 = since("1+", default=-1)
    topics: list[TopicData] = since("0+", factory=list)


@struct
class ResponsePartitionData:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    vote_granted: bool = since("0+", default=False)


@struct
class ResponseTopicData:
    topic_name: str = since("0+", default="")
    partitions: list[ResponsePartitionData] = since("0+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("1+", default=0)
    host: str = since("1+", default="")
    port: UInt16 = since("1+", default=0)


@response(key=ApiKey.VOTE, versions="0-2", flexible="0+")
class VoteResponse:
    error_code: Int16 = since("0+", default=0)
    topics: list[ResponseTopicData] = since("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list, tag=0)
