"""AlterPartition (key 56): a leader asks the controller to change the ISR of its partitions.

v3 each broker of the ISR with its epoch (KIP-903).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid


@struct
class BrokerState:
    broker_id: Int32 = since("3+", default=0)
    broker_epoch: Int64 = since("3+", default=-1)


@struct
class PartitionData:
    partition_index: Int32 = since("2+", default=0)
    leader_epoch: Int32 = since("2+", default=0)
    new_isr: list[Int32] = since("2", factory=list)
    new_isr_with_epochs: list[BrokerState] = since("3+", factory=list)
    leader_recovery_state: Int8 = since("2+", default=0)
    partition_epoch: Int32 = since("2+", default=0)


@struct
class TopicData:
    topic_id: Uuid = since("2+", default=ZERO_UUID)
    partitions: list[PartitionData] = since("2+", factory=list)


@request(key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="2+")
class AlterPartitionRequest:
    broker_id: Int32 = since("2+", default=0)
    broker_epoch: Int64 = since("2+", default=-1)
    topics: list[TopicData] = since("2+", factory=list)


@struct
class ResponsePartitionData:
    partition_index: Int32 = since("2+", default=0)
    error_code: Int16 = since("2+", default=0)
    leader_id: Int32 = since("2+", default=0)
    leader_epoch: Int32 = since("2+", default=0)
    isr: list[Int32] = since("2+", factory=list)
    leader_recovery_state: Int8 = since("2+", default=0)
    partition_epoch: Int32 = since("2+", default=0)


@struct
class ResponseTopicData:
    topic_id: Uuid = since("2+", default=ZERO_UUID)
    partitions: list[ResponsePartitionData] = since("2+", factory=list)


@response(key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="2+")
class AlterPartitionResponse:
    throttle_time_ms: Int32 = since("2+", default=0)
    error_code: Int16 = since("2+", default=0)
    topics: list[ResponseTopicData] = since("2+", factory=list)
