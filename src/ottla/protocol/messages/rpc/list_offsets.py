"""ListOffsets (key 2): the offsets of partitions at a timestamp, or at their start or end.

v2 isolation level (KIP-98); returns the throttle time · v3 responds before it throttles (KIP-219) · v4 leader epochs
both ways (KIP-320) · v5 may return OFFSET_NOT_AVAILABLE (KIP-207) · v6 flexible · v7 timestamp -3 asks for the record
with the latest one (KIP-734) · v8 timestamp -4 asks for the earliest offset on local disk (KIP-405) · v9 timestamp -5
asks for the latest offset in tiered storage (KIP-1005) · v10 time limit for asking remote storage (KIP-1075) · v11
timestamp -6 asks for the earliest offset yet to be uploaded (KIP-1023).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32, Int64


@struct
class ListOffsetsPartition:
    partition_index: Int32 = since("1+", default=0)
    current_leader_epoch: Int32 = since("4+", default=-1)
    timestamp: Int64 = since("1+", default=0)


@struct
class ListOffsetsTopic:
    name: str = since("1+", default="")
    partitions: list[ListOffsetsPartition] = since("1+", factory=list)


@request(key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32 = since("1+", default=0)
    isolation_level: Int8 = since("2+", default=0)
    topics: list[ListOffsetsTopic] = since("1+", factory=list)
    timeout_ms: Int32 = since("10+", default=0)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    timestamp: Int64 = since("1+", default=-1)
    offset: Int64 = since("1+", default=-1)
    leader_epoch: Int32 = since("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = since("1+", default="")
    partitions: list[ListOffsetsPartitionResponse] = since("1+", factory=list)


@response(key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = since("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = since("1+", factory=list)
