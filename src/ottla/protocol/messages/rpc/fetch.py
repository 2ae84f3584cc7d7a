"""Fetch (key 1): read records of partitions, as a consumer or as a follower that replicates them.

v5 log start offsets both ways (KIP-107) · v6 may report a failed log directory (KIP-112) · v7 incremental fetch
sessions (KIP-227) · v8 responds before it throttles (KIP-219) · v9 fences by leader epoch (KIP-320) · v10 zstd
(KIP-110) · v11 rack of the client and preferred read replica (KIP-392) · v12 flexible; truncation by epoch (KIP-595)
and snapshots (KIP-630) · v13 topic ids instead of names (KIP-516) · v14 may report an offset in tiered storage
(KIP-405) · v15 replica's epoch goes with its id (KIP-903) · v16 endpoints of new leaders (KIP-951) · v17 directory of
the replica (KIP-853) · v18 high watermark that the follower knows (KIP-1166).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, Uuid


@struct
class FetchPartition:
    partition: Int32 = since("4+", default=0)
    current_leader_epoch: Int32 = since("9+", default=-1)
    fetch_offset: Int64 = since("4+", default=0)
    last_fetched_epoch: Int32 = since("12+", default=-1)
    log_start_offset: Int64 = since("5+", default=-1)
    partition_max_bytes: Int32 = since("4+", default=0)
    replica_directory_id: Uuid = since("17+", default=ZERO_UUID, tag=0)
    high_watermark: Int64 = since("18+", default=9_223_372_036_854_775_807, tag=1)


@struct
class FetchTopic:
    topic: str = since("4-12", default="")
    topic_id: Uuid = since("13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = since("4+", factory=list)


@struct
class ForgottenTopic:
    topic: str = since("7-12", default="")
    topic_id: Uuid = since("13+", default=ZERO_UUID)
    partitions: list[Int32] = since("7+", factory=list)


@struct
class ReplicaState:
    replica_id: Int32 = since("15+", default=-1)
    replica_epoch: Int64 = since("15+", default=-1)


@request(key=ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchRequest:
    replica_id: Int32 = since("4-14", default=-1)
    max_wait_ms: Int32 = since("4+", default=0)
    min_bytes: Int32 = since("4+", default=0)
    max_bytes: Int32 = since("4+", default=2_147_483_647)
    isolation_level: Int8 = since("4+", default=0)
    session_id: Int32 = since("7+", default=0)
    session_epoch: Int32 = since("7+", default=-1)
    topics: list[FetchTopic] = since("4+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = since("7+", factory=list)
    rack_id: str = since("11+", default="")
    cluster_id: str | None = since("12+", default=None, tag=0)
    replica_state: ReplicaState | None = since("15+", default=None, tag=1)


@struct
class AbortedTransaction:
    producer_id: Int64 = since("4+", default=0)
    first_offset: Int64 = since("4+", default=0)


@struct
class EpochEndOffset:
    epoch: Int32 = since("12+", default=-1)
    end_offset: Int64 = since("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since("12+", default=-1)
    leader_epoch: Int32 = since("12+", default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = since("12+", default=-1)
    epoch: Int32 = since("12+", default=-1)


@struct
class PartitionData:
    partition_index: Int32 = since("4+", default=0)
    error_code: Int16 = since("4+", default=0)
    high_watermark: Int64 = since("4+", default=0)
    last_stable_offset: Int64 = since("4+", default=-1)
    log_start_offset: Int64 = since("5+", default=-1)
    aborted_transactions: list[AbortedTransaction] | None = since("4+", factory=list)
    preferred_read_replica: Int32 = since("11+", default=-1)
    records: Records | None = since("4+", default=None)
    diverging_epoch: EpochEndOffset | None = since("12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = since("12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = since("12+", default=None, tag=2)


@struct
class FetchableTopicResponse:
    topic: str = since("4-12", default="")
    topic_id: Uuid = since("13+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("4+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("16+", default=0)
    host: str = since("16+", default="")
    port: Int32 = since("16+", default=0)
    rack: str | None = since("16+", default=None)


@response(key=ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = since("4+", default=0)
    error_code: Int16 = since("7+", default=0)
    session_id: Int32 = since("7+", default=0)
    responses: list[FetchableTopicResponse] = since("4+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("16+", factory=list, tag=0)
