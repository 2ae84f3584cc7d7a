"""InitializeShareGroupState (key 83): create the state of share partitions at their coordinator."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class PartitionData:
    partition: Int32 = since("0+", default=0)
    state_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)


@struct
class InitializeStateData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = since("0+", default="")
    topics: list[InitializeStateData] = since("0+", factory=list)


@struct
class PartitionResult:
    partition: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@struct
class InitializeStateResult:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = since("0+", factory=list)
