"""UnregisterBroker (key 64): remove a broker permanently from the cluster's metadata."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32


@request(key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32 = since("0+", default=0)


@response(key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
