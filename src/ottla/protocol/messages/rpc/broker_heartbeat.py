"""BrokerHeartbeat (key 63): a broker reports that it is alive, and asks to be unfenced or to shut down.

v1 offline log directories (KIP-858) · v2 cordoned log directories (KIP-1066).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64, Uuid


@request(key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: Int32 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=-1)
    current_metadata_offset: Int64 = since("0+", default=0)
    want_fence: bool = since("0+", default=False)
    want_shut_down: bool = since("0+", default=False)
    offline_log_dirs: list[Uuid] = since("1+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = since("2+", default=None, tag=1)


@response(key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    is_caught_up: bool = since("0+", default=False)
    is_fenced: bool = since("0+", default=True)
    should_shut_down: bool = since("0+", default=False)
