"""CreatePartitions (key 37): add partitions to topics.

v1 responds before it throttles (KIP-219) · v2 flexible · v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = since("0+", factory=list)


@struct
class CreatePartitionsTopic:
    name: str = since("0+", default="")
    count: Int32 = since("0+", default=0)
    assignments: list[CreatePartitionsAssignment] | None = since("0+", factory=list)


@request(key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = since("0+", factory=list)
    timeout_ms: Int32 = since("0+", default=0)
    validate_only: bool = since("0+", default=False)


@struct
class CreatePartitionsTopicResult:
    name: str = since("0+", default="")
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)


@response(key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    results: list[CreatePartitionsTopicResult] = since("0+", factory=list)
