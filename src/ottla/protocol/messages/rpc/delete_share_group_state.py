"""DeleteShareGroupState (key 86): delete the state of share partitions at their coordinator."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class PartitionData:
    partition: Int32 = since("0+", default=0)


@struct
class DeleteStateData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str = since("0+", default="")
    topics: list[DeleteStateData] = since("0+", factory=list)


@struct
class PartitionResult:
    partition: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@struct
class DeleteStateResult:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = since("0+", factory=list)
