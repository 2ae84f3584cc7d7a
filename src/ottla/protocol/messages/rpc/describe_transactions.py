"""DescribeTransactions (key 65): the state and the partitions of transactions."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = since("0+", factory=list)


@struct
class TopicData:
    topic: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class TransactionState:
    error_code: Int16 = since("0+", default=0)
    transactional_id: str = since("0+", default="")
    transaction_state: str = since("0+", default="")
    transaction_timeout_ms: Int32 = since("0+", default=0)
    transaction_start_time_ms: Int64 = since("0+", default=0)
    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int16 = since("0+", default=0)
    topics: list[TopicData] = since("0+", factory=list)


@response(key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    transaction_states: list[TransactionState] = since("0+", factory=list)
