"""DescribeTopicPartitions (key 75): the partitions of topics page by page, with eligible leader replicas."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class TopicRequest:
    name: str = since("0+", default="")


@struct
class Cursor:
    topic_name: str = since("0+", default="")
    partition_index: Int32 = since("0+", default=0)


@request(key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = since("0+", factory=list)
    response_partition_limit: Int32 = since("0+", default=2000)
    cursor: Cursor | None = since("0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = since("0+", default=0)
    partition_index: Int32 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=-1)
    replica_nodes: list[Int32] = since("0+", factory=list)
    isr_nodes: list[Int32] = since("0+", factory=list)
    eligible_leader_replicas: list[Int32] | None = since("0+", default=None)
    last_known_elr: list[Int32] | None = since("0+", default=None)
    offline_replicas: list[Int32] = since("0+", factory=list)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = since("0+", default=0)
    name: str | None = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    is_internal: bool = since("0+", default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = since("0+", factory=list)
    topic_authorized_operations: Int32 = since("0+", default=-2_147_483_648)


@response(key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = since("0+", factory=list)
    next_cursor: Cursor | None = since("0+", default=None)
