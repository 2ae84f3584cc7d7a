"""InitProducerId (key 22): give a producer its id and epoch, and abort the open transaction of its predecessor.

v1 responds before it throttles (KIP-219) · v2 flexible · v3 a producer may raise its own epoch (KIP-360) · v4 fenced
producers get PRODUCER_FENCED (KIP-588) · v5 may return TRANSACTION_ABORTABLE (KIP-890) · v6 two-phase commit, not
stable yet (KIP-939).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = since("0+", default="")
    transaction_timeout_ms: Int32 = since("0+", default=0)
    producer_id: Int64 = since("3+", default=-1)
    producer_epoch: Int16 = since("3+", default=-1)
    enable2_pc: bool = since("6+", default=False)
    keep_prepared_txn: bool = since("6+", default=False)


@response(key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    producer_id: Int64 = since("0+", default=-1)
    producer_epoch: Int16 = since("0+", default=0)
    ongoing_txn_producer_id: Int64 = since("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = since("6+", default=-1)
