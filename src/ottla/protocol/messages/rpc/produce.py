"""Produce (key 0): append batches of records to partitions.

v4 may report a failed log directory (KIP-112) · v5 returns the log start offset (KIP-107) · v6 responds before it
throttles (KIP-219) · v7 zstd (KIP-110) · v8 errors by record, with a message (KIP-467) · v9 flexible · v10 hints at the
new leader (KIP-951) · v11 may return TRANSACTION_ABORTABLE (KIP-890) · v12 adds the partition to its transaction by
itself (KIP-890) · v13 topic ids instead of names (KIP-516).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, Records, Uuid


@struct
class PartitionProduceData:
    index: Int32 = since("3+", default=0)
    records: Records | None = since("3+", default=None)


@struct
class TopicProduceData:
    name: str = since("3-12", default="")
    topic_id: Uuid = since("13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = since("3+", factory=list)


@request(key=ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = since("3+", default=None)
    acks: Int16 = since("3+", default=0)
    timeout_ms: Int32 = since("3+", default=0)
    topic_data: list[TopicProduceData] = since("3+", factory=list)


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = since("8+", default=0)
    batch_index_error_message: str | None = since("8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since("10+", default=-1)
    leader_epoch: Int32 = since("10+", default=-1)


@struct
class PartitionProduceResponse:
    index: Int32 = since("3+", default=0)
    error_code: Int16 = since("3+", default=0)
    base_offset: Int64 = since("3+", default=0)
    log_append_time_ms: Int64 = since("3+", default=-1)
    log_start_offset: Int64 = since("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since("8+", factory=list)
    error_message: str | None = since("8+", default=None)
    current_leader: LeaderIdAndEpoch | None = since("10+", default=None, tag=0)


@struct
class TopicProduceResponse:
    name: str = since("3-12", default="")
    topic_id: Uuid = since("13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = since("3+", factory=list)


@struct
class NodeEndpoint:
    node_id: Int32 = since("10+", default=0)
    host: str = since("10+", default="")
    port: Int32 = since("10+", default=0)
    rack: str | None = since("10+", default=None)


@response(key=ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = since("3+", factory=list)
    throttle_time_ms: Int32 = since("3+", default=0)
    node_endpoints: list[NodeEndpoint] = since("10+", factory=list, tag=0)
