"""TxnOffsetCommit (key 28): commit the offsets of a group as part of a transaction.

v1 responds before it throttles (KIP-219) · v2 leader epoch of the last record (KIP-320) · v3 flexible; member and
generation fence old members (KIP-447) · v4 may return TRANSACTION_ABORTABLE (KIP-890) · v5 adds the group to the
transaction by itself (KIP-890).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = since("0+", default=0)
    committed_offset: Int64 = since("0+", default=0)
    committed_leader_epoch: Int32 = since("2+", default=-1)
    committed_metadata: str | None = since("0+", default="")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = since("0+", default="")
    partitions: list[TxnOffsetCommitRequestPartition] = since("0+", factory=list)


@request(key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = since("0+", default="")
    group_id: str = since("0+", default="")
    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int16 = since("0+", default=0)
    generation_id: Int32 = since("3+", default=-1)
    member_id: str = since("3+", default="")
    group_instance_id: str | None = since("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = since("0+", factory=list)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = since("0+", default="")
    partitions: list[TxnOffsetCommitResponsePartition] = since("0+", factory=list)


@response(key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = since("0+", factory=list)
