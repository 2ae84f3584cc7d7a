"""ShareFetch (key 78): acquire records of share partitions, and acknowledge earlier ones.

v2 strict record limit (KIP-1206); locks can be renewed (KIP-1222).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64 = since("1+", default=0)
    last_offset: Int64 = since("1+", default=0)
    acknowledge_types: list[Int8] = since("1+", factory=list)


@struct
class FetchPartition:
    partition_index: Int32 = since("1+", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = since("1+", factory=list)


@struct
class FetchTopic:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[FetchPartition] = since("1+", factory=list)


@struct
class ForgottenTopic:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[Int32] = since("1+", factory=list)


@request(key=ApiKey.SHARE_FETCH, versions="1-2", flexible="1+")
class ShareFetchRequest:
    group_id: str | None = since("1+", default=None)
    member_id: str | None = since("1+", default="")
    share_session_epoch: Int32 = since("1+", default=0)
    max_wait_ms: Int32 = since("1+", default=0)
    min_bytes: Int32 = since("1+", default=0)
    max_bytes: Int32 = since("1+", default=2_147_483_647)
    max_records: Int32 = since("1+", default=0)
    batch_size: Int32 = since("1+", default=0)
    share_acquire_mode: Int8 = since("2+", default=0)
    is_renew_ack: bool = since("2+", default=False)
    topics: list[FetchTopic] = since("1+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = since("1+", factory=list)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since("1+", default=0)
    leader_epoch: Int32 = since("1+", default=0)


@struct
class AcquiredRecords:
    first_offset: Int64 = since("1+", default=0)
    last_offset: Int64 = since("1+", default=0)
    delivery_count: Int16 = since("1+", default=0)


@struct
class PartitionData:
    partition_index: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    acknowledge_error_code: Int16 = since("1+", default=0)
    acknowledge_error_message: str | None = since("1+", default=None)
    current_leader: LeaderIdAndEpoch = since("1+", factory=LeaderIdAndEpoch)
    records: Records = since("1+", default=None)
    acquired_records: list[AcquiredRecords] = since("1+", factory=list)


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("1+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("1+", default=0)
    host: str = since("1+", default="")
    port: Int32 = since("1+", default=0)
    rack: str | None = since("1+", default=None)


@response(key=ApiKey.SHARE_FETCH, versions="1-2", flexible="1+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    acquisition_lock_timeout_ms: Int32 = since("1+", default=0)
    responses: list[ShareFetchableTopicResponse] = since("1+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list)
