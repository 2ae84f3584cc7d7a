"""ElectLeaders (key 43): elect the preferred leaders of partitions, or unclean leaders.

v1 unclean elections, and an error for the whole answer (KIP-460) · v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class TopicPartitions:
    topic: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@request(key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = since("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = since("0+", factory=list)
    timeout_ms: Int32 = since("0+", default=60_000)


@struct
class PartitionResult:
    partition_id: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")


@struct
class ReplicaElectionResult:
    topic: str = since("0+", default="")
    partition_result: list[PartitionResult] = since("0+", factory=list)


@response(key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = since("0+", factory=list)
