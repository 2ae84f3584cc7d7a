"""ReadShareGroupState (key 84): a partition's leader loads the state of share partitions from their coordinator."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid


@struct
class PartitionData:
    partition: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)


@struct
class ReadStateData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = since("0+", default="")
    topics: list[ReadStateData] = since("0+", factory=list)


@struct
class StateBatch:
    first_offset: Int64 = since("0+", default=0)
    last_offset: Int64 = since("0+", default=0)
    delivery_state: Int8 = since("0+", default=0)
    delivery_count: Int16 = since("0+", default=0)


@struct
class PartitionResult:
    partition: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    state_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    state_batches: list[StateBatch] = since("0+", factory=list)


@struct
class ReadStateResult:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = since("0+", factory=list)
