"""WriteShareGroupState (key 85): a partition's leader stores the state of share partitions at their coordinator.

v1 number of records done past the start offset (KIP-1226).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid


@struct
class StateBatch:
    first_offset: Int64 = since("0+", default=0)
    last_offset: Int64 = since("0+", default=0)
    delivery_state: Int8 = since("0+", default=0)
    delivery_count: Int16 = since("0+", default=0)


@struct
class PartitionData:
    partition: Int32 = since("0+", default=0)
    state_epoch: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    delivery_complete_count: Int32 = since("1+", default=-1)
    state_batches: list[StateBatch] = since("0+", factory=list)


@struct
class WriteStateData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str = since("0+", default="")
    topics: list[WriteStateData] = since("0+", factory=list)


@struct
class PartitionResult:
    partition: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@struct
class WriteStateResult:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = since("0+", factory=list)
