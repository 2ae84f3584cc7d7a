"""DeleteRecords (key 21): delete the records of partitions below an offset.

v1 responds before it throttles (KIP-219) · v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = since("0+", default=0)
    offset: Int64 = since("0+", default=0)


@struct
class DeleteRecordsTopic:
    name: str = since("0+", default="")
    partitions: list[DeleteRecordsPartition] = since("0+", factory=list)


@request(key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = since("0+", factory=list)
    timeout_ms: Int32 = since("0+", default=0)


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = since("0+", default=0)
    low_watermark: Int64 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)


@struct
class DeleteRecordsTopicResult:
    name: str = since("0+", default="")
    partitions: list[DeleteRecordsPartitionResult] = since("0+", factory=list)


@response(key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = since("0+", factory=list)
