"""OffsetFetch (key 9): the committed offsets of groups.

v2 all partitions of the group, and an error for the group (KIP-88) · v3 returns the throttle time (KIP-124) · v4
responds before it throttles (KIP-219) · v5 leader epochs (KIP-320) · v6 flexible · v7 can wait for open transactions
(KIP-447) · v8 many groups at once (KIP-709) · v9 member and its epoch (KIP-848) · v10 topic ids instead of names
(KIP-848).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Uuid


@struct
class OffsetFetchRequestTopic:
    name: str = since("1-7", default="")
    partition_indexes: list[Int32] = since("1-7", factory=list)


@struct
class OffsetFetchRequestTopics:
    name: str = since("8-9", default="")
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    partition_indexes: list[Int32] = since("8+", factory=list)


@struct
class OffsetFetchRequestGroup:
    group_id: str = since("8+", default="")
    member_id: str | None = since("9+", default=None)
    member_epoch: Int32 = since("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since("8+", factory=list)


@request(key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = since("1-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = since("1-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = since("8+", factory=list)
    require_stable: bool = since("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = since("1-7", default=0)
    committed_offset: Int64 = since("1-7", default=0)
    committed_leader_epoch: Int32 = since("5-7", default=-1)
    metadata: str | None = since("1-7", default="")
    error_code: Int16 = since("1-7", default=0)


@struct
class OffsetFetchResponseTopic:
    name: str = since("1-7", default="")
    partitions: list[OffsetFetchResponsePartition] = since("1-7", factory=list)


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = since("8+", default=0)
    committed_offset: Int64 = since("8+", default=0)
    committed_leader_epoch: Int32 = since("8+", default=-1)
    metadata: str | None = since("8+", default="")
    error_code: Int16 = since("8+", default=0)


@struct
class OffsetFetchResponseTopics:
    name: str = since("8-9", default="")
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = since("8+", factory=list)


@struct
class OffsetFetchResponseGroup:
    group_id: str = since("8+", default="")
    topics: list[OffsetFetchResponseTopics] = since("8+", factory=list)
    error_code: Int16 = since("8+", default=0)


@response(key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = since("1-7", factory=list)
    error_code: Int16 = since("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = since("8+", factory=list)
