"""ListPartitionReassignments (key 46): the reassignments in progress."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class ListPartitionReassignmentsTopics:
    name: str = since("0+", default="")
    partition_indexes: list[Int32] = since("0+", factory=list)


@request(key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = since("0+", default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = since("0+", default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = since("0+", default=0)
    replicas: list[Int32] = since("0+", factory=list)
    adding_replicas: list[Int32] = since("0+", factory=list)
    removing_replicas: list[Int32] = since("0+", factory=list)


@struct
class OngoingTopicReassignment:
    name: str = since("0+", default="")
    partitions: list[OngoingPartitionReassignment] = since("0+", factory=list)


@response(key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    topics: list[OngoingTopicReassignment] = since("0+", factory=list)
