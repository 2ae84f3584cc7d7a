"""AlterShareGroupOffsets (key 91): set the start offsets of an empty share group."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = since("0+", default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = since("0+", factory=list)


@request(key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = since("0+", default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = since("0+", factory=list)


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = since("0+", factory=list)


@response(key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = since("0+", factory=list)
