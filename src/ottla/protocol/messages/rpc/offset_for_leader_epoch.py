"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, to find where logs diverge.

v3 distinguishes consumers and followers (KIP-392) · v4 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class OffsetForLeaderPartition:
    partition: Int32 = since("2+", default=0)
    current_leader_epoch: Int32 = since("2+", default=-1)
    leader_epoch: Int32 = since("2+", default=0)


@struct
class OffsetForLeaderTopic:
    topic: str = since("2+", default="")
    partitions: list[OffsetForLeaderPartition] = since("2+", factory=list)


@request(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = since("2+", factory=list)


@struct
class EpochEndOffset:
    error_code: Int16 = since("2+", default=0)
    partition: Int32 = since("2+", default=0)
    leader_epoch: Int32 = since("2+", default=-1)
    end_offset: Int64 = since("2+", default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = since("2+", default="")
    partitions: list[EpochEndOffset] = since("2+", factory=list)


@response(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since("2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = since("2+", factory=list)
