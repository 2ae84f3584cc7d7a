"""DeleteShareGroupOffsets (key 92): delete the offsets of an empty share group."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = since("0+", default="")


@request(key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = since("0+", default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = since("0+", factory=list)


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@response(key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = since("0+", factory=list)
