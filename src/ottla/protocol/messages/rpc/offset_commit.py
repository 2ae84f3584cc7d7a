"""OffsetCommit (key 8): commit the offsets of a group.

v3 returns the throttle time (KIP-124) · v4 responds before it throttles (KIP-219) · v5 no retention time of its own
(KIP-211) · v6 leader epoch of the last record (KIP-320) · v7 static members (KIP-345) · v8 flexible · v9 member epoch
of a consumer group (KIP-848) · v10 topic ids instead of names (KIP-848).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = since("2+", default=0)
    committed_offset: Int64 = since("2+", default=0)
    committed_leader_epoch: Int32 = since("6+", default=-1)
    committed_metadata: str | None = since("2+", default="")


@struct
class OffsetCommitRequestTopic:
    name: str = since("2-9", default="")
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = since("2+", factory=list)


@request(key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = since("2+", default="")
    generation_id_or_member_epoch: Int32 = since("2+", default=-1)
    member_id: str = since("2+", default="")
    retention_time_ms: Int64 = since("2-4", default=-1)
    group_instance_id: str | None = since("7+", default=None)
    topics: list[OffsetCommitRequestTopic] = since("2+", factory=list)


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = since("2+", default=0)
    error_code: Int16 = since("2+", default=0)


@struct
class OffsetCommitResponseTopic:
    name: str = since("2-9", default="")
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = since("2+", factory=list)


@response(key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = since("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = since("2+", factory=list)
