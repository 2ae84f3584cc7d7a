"""FindCoordinator (key 10): the broker that coordinates a group, a transaction or a share partition.

v1 names the kind of key (KIP-98); returns the throttle time and a message · v2 responds before it throttles (KIP-219) ·
v3 flexible · v4 many keys at once (KIP-699) · v5 may return TRANSACTION_ABORTABLE (KIP-890) · v6 share keys (KIP-932).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@request(key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = since("0-3", default="")
    key_type: Int8 = since("1+", default=0)
    coordinator_keys: list[str] = since("4+", factory=list)


@struct
class Coordinator:
    key: str = since("4+", default="")
    node_id: Int32 = since("4+", default=0)
    host: str = since("4+", default="")
    port: Int32 = since("4+", default=0)
    error_code: Int16 = since("4+", default=0)
    error_message: str | None = since("4+", default="")


@response(key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("0-3", default=0)
    error_message: str | None = since("1-3", default="")
    node_id: Int32 = since("0-3", default=0)
    host: str = since("0-3", default="")
    port: Int32 = since("0-3", default=0)
    coordinators: list[Coordinator] = since("4+", factory=list)
