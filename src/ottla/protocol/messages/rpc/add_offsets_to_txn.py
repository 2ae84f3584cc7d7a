"""AddOffsetsToTxn (key 25): add the committed offsets of a group to a transaction.

v1 responds before it throttles (KIP-219) · v2 fenced producers get PRODUCER_FENCED (KIP-588) · v3 flexible · v4 may
return TRANSACTION_ABORTABLE (KIP-890).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = since("0+", default="")
    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int16 = since("0+", default=0)
    group_id: str = since("0+", default="")


@response(key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
