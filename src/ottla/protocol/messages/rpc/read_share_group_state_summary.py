"""ReadShareGroupStateSummary (key 87): the start offsets of share partitions, without the state of each record.

v1 number of records done past the start offset (KIP-1226).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class PartitionData:
    partition: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)


@struct
class ReadStateSummaryData:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("0+", factory=list)


@request(key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = since("0+", default="")
    topics: list[ReadStateSummaryData] = since("0+", factory=list)


@struct
class PartitionResult:
    partition: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    state_epoch: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    delivery_complete_count: Int32 = since("1+", default=-1)


@struct
class ReadStateSummaryResult:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = since("0+", factory=list)
