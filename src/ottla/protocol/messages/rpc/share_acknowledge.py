"""ShareAcknowledge (key 79): accept, release or reject records acquired from share partitions.

v2 locks can be renewed, returns the lock duration (KIP-1222).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64 = since("1+", default=0)
    last_offset: Int64 = since("1+", default=0)
    acknowledge_types: list[Int8] = since("1+", factory=list)


@struct
class AcknowledgePartition:
    partition_index: Int32 = since("1+", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = since("1+", factory=list)


@struct
class AcknowledgeTopic:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[AcknowledgePartition] = since("1+", factory=list)


@request(key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="1+")
class ShareAcknowledgeRequest:
    group_id: str | None = since("1+", default=None)
    member_id: str | None = since("1+", default="")
    share_session_epoch: Int32 = since("1+", default=0)
    is_renew_ack: bool = since("2+", default=False)
    topics: list[AcknowledgeTopic] = since("1+", factory=list)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since("1+", default=0)
    leader_epoch: Int32 = since("1+", default=0)


@struct
class PartitionData:
    partition_index: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    current_leader: LeaderIdAndEpoch = since("1+", factory=LeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("1+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("1+", default=0)
    host: str = since("1+", default="")
    port: Int32 = since("1+", default=0)
    rack: str | None = since("1+", default=None)


@response(key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="1+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    acquisition_lock_timeout_ms: Int32 = since("2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = since("1+", factory=list)
    node_endpoints: list[NodeEndpoint] = since("1+", factory=list)
