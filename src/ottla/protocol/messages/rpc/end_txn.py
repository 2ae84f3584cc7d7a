"""EndTxn (key 26): commit or abort a transaction.

v1 responds before it throttles (KIP-219) · v2 fenced producers get PRODUCER_FENCED (KIP-588) · v3 flexible · v4 may
return TRANSACTION_ABORTABLE (KIP-890) · v5 gives the producer its next id and epoch (KIP-890).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = since("0+", default="")
    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int16 = since("0+", default=0)
    committed: bool = since("0+", default=False)


@response(key=ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    producer_id: Int64 = since("5+", default=-1)
    producer_epoch: Int16 = since("5+", default=-1)
