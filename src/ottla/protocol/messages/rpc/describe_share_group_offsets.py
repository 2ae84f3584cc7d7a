"""DescribeShareGroupOffsets (key 90): the start offsets of share groups.

v1 returns the lag (KIP-1226).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = since("0+", default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = since("0+", factory=list)


@request(key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = since("0+", factory=list)


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    lag: Int64 = since("1+", default=-1)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = since("0+", factory=list)


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = since("0+", default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = since("0+", factory=list)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@response(key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = since("0+", factory=list)
