"""OffsetDelete (key 47): delete offsets that a group committed for topics it no longer reads."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = since("0+", default=0)


@struct
class OffsetDeleteRequestTopic:
    name: str = since("0+", default="")
    partitions: list[OffsetDeleteRequestPartition] = since("0+", factory=list)


@request(key=ApiKey.OFFSET_DELETE, versions="0")
class OffsetDeleteRequest:
    group_id: str = since("0+", default="")
    topics: list[OffsetDeleteRequestTopic] = since("0+", factory=list)


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)


@struct
class OffsetDeleteResponseTopic:
    name: str = since("0+", default="")
    partitions: list[OffsetDeleteResponsePartition] = since("0+", factory=list)


@response(key=ApiKey.OFFSET_DELETE, versions="0")
class OffsetDeleteResponse:
    error_code: Int16 = since("0+", default=0)
    throttle_time_ms: Int32 = since("0+", default=0)
    topics: list[OffsetDeleteResponseTopic] = since("0+", factory=list)
