"""ListTransactions (key 66): the transactions that a broker coordinates.

v1 filter by how long they run (KIP-994) · v2 filter by a pattern of the transactional id (KIP-1152).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = since("0+", factory=list)
    producer_id_filters: list[Int64] = since("0+", factory=list)
    duration_filter: Int64 = since("1+", default=-1)
    transactional_id_pattern: str | None = since("2+", default=None)


@struct
class TransactionState:
    transactional_id: str = since("0+", default="")
    producer_id: Int64 = since("0+", default=0)
    transaction_state: str = since("0+", default="")


@response(key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    unknown_state_filters: list[str] = since("0+", factory=list)
    transaction_states: list[TransactionState] = since("0+", factory=list)
