"""Heartbeat (key 12): a member of a classic group reports that it is alive, and learns whether the group rebalances.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 static members (KIP-345) · v4
flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32


@request(key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = since("0+", default="")
    generation_id: Int32 = since("0+", default=0)
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("3+", default=None)


@response(key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("0+", default=0)
