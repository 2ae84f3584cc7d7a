"""AlterPartitionReassignments (key 45): move the replicas of partitions to other brokers, or cancel a move.

v1 can forbid a change of the replication factor (KIP-860).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class ReassignablePartition:
    partition_index: Int32 = since("0+", default=0)
    replicas: list[Int32] | None = since("0+", default=None)


@struct
class ReassignableTopic:
    name: str = since("0+", default="")
    partitions: list[ReassignablePartition] = since("0+", factory=list)


@request(key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = since("0+", default=60_000)
    allow_replication_factor_change: bool = since("1+", default=True)
    topics: list[ReassignableTopic] = since("0+", factory=list)


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")


@struct
class ReassignableTopicResponse:
    name: str = since("0+", default="")
    partitions: list[ReassignablePartitionResponse] = since("0+", factory=list)


@response(key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    allow_replication_factor_change: bool = since("1+", default=True)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    responses: list[ReassignableTopicResponse] = since("0+", factory=list)
