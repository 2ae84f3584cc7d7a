"""DescribeProducers (key 61): the active producers of partitions, and their open transactions."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class TopicRequest:
    name: str = since("0+", default="")
    partition_indexes: list[Int32] = since("0+", factory=list)


@request(key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = since("0+", factory=list)


@struct
class ProducerState:
    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int32 = since("0+", default=0)
    last_sequence: Int32 = since("0+", default=-1)
    last_timestamp: Int64 = since("0+", default=-1)
    coordinator_epoch: Int32 = since("0+", default=0)
    current_txn_start_offset: Int64 = since("0+", default=-1)


@struct
class PartitionResponse:
    partition_index: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    active_producers: list[ProducerState] = since("0+", factory=list)


@struct
class TopicResponse:
    name: str = since("0+", default="")
    partitions: list[PartitionResponse] = since("0+", factory=list)


@response(key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    topics: list[TopicResponse] = since("0+", factory=list)
