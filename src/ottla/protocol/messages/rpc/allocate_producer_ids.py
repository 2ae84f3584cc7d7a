"""AllocateProducerIds (key 67): a broker gets a block of producer ids from the controller."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=-1)


@response(key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    producer_id_start: Int64 = since("0+", default=0)
    producer_id_len: Int32 = since("0+", default=0)
