"""FetchSnapshot (key 59): fetch a part of a snapshot of the metadata log.

v1 directory of the replica, endpoints of the leader (KIP-853).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Records, UInt16, Uuid


@struct
class SnapshotId:
    end_offset: Int64 = since("0+", default=0)
    epoch: Int32 = since("0+", default=0)


@struct
class PartitionSnapshot:
    partition: Int32 = since("0+", default=0)
    current_leader_epoch: Int32 = since("0+", default=0)
    snapshot_id: SnapshotId = since("0+", factory=SnapshotId)
    position: Int64 = since("0+", default=0)
    replica_directory_id: Uuid = since("1+", default=ZERO_UUID, tag=0)


@struct
class TopicSnapshot:
    name: str = since("0+", default="")
    partitions: list[PartitionSnapshot] = since("0+", factory=list)


@request(key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    replica_id: Int32 = since("0+", default=-1)
    max_bytes: Int32 = since("0+", default=2_147_483_647)
    topics: list[TopicSnapshot] = since("0+", factory=list)
    cluster_id: str | None = since("0+", default=None, tag=0)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)


@struct
class ResponsePartitionSnapshot:
    index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    snapshot_id: SnapshotId = since("0+", factory=SnapshotId)
    size: Int64 = since("0+", default=0)
    position: Int64 = since("0+", default=0)
    unaligned_records: Records = since("0+", default=None)
    current_leader: LeaderIdAndEpoch | None = since("0+", default=None, tag=0)


@struct
class ResponseTopicSnapshot:
    name: str = since("0+", default="")
    partitions: list[ResponsePartitionSnapshot] = since("0+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("1+", default=0)
    host: str = since("1+", default="")
    port: UInt16 = since("1+", default=0)


@response(key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    topics: list[ResponseTopicSnapshot] = since("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list, tag=0)
