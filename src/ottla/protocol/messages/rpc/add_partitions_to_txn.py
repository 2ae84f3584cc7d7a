"""AddPartitionsToTxn (key 24): add partitions to a transaction, or check that they are in it.

v1 responds before it throttles (KIP-219) · v2 fenced producers get PRODUCER_FENCED (KIP-588) · v3 flexible · v4 many
transactions at once and checks only, between brokers (KIP-890) · v5 may return TRANSACTION_ABORTABLE (KIP-890).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class AddPartitionsToTxnTopic:
    name: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = since("4+", default="")
    producer_id: Int64 = since("4+", default=0)
    producer_epoch: Int16 = since("4+", default=0)
    verify_only: bool = since("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = since("4+", factory=list)


@request(key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = since("0-3", default="")
    v3_and_below_producer_id: Int64 = since("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = since("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since("0-3", factory=list)
    transactions: list[AddPartitionsToTxnTransaction] = since("4+", factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = since("0+", default=0)
    partition_error_code: Int16 = since("0+", default=0)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = since("0+", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = since("0+", factory=list)


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = since("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = since("4+", factory=list)


@response(key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since("0-3", factory=list)
    error_code: Int16 = since("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since("4+", factory=list)
