"""JoinGroup (key 11): join a classic group and wait for its next generation.

v1 rebalance timeout (KIP-62) · v2 returns the throttle time (KIP-124) · v3 responds before it throttles (KIP-219) · v4
a new member must join again with the id it got (KIP-394) · v5 static members (KIP-345) · v6 flexible · v7 returns the
protocol type; the protocol may be null (KIP-559) · v8 reason to join (KIP-800) · v9 a returning static leader may skip
the assignment (KIP-814).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class JoinGroupRequestProtocol:
    name: str = since("0+", default="")
    metadata: bytes = since("0+", default=b"")


@request(key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = since("0+", default="")
    session_timeout_ms: Int32 = since("0+", default=0)
    rebalance_timeout_ms: Int32 = since("1+", default=-1)
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("5+", default=None)
    protocol_type: str = since("0+", default="")
    protocols: list[JoinGroupRequestProtocol] = since("0+", factory=list)
    reason: str | None = since("8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("5+", default=None)
    metadata: bytes = since("0+", default=b"")


@response(key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = since("2+", default=0)
    error_code: Int16 = since("0+", default=0)
    generation_id: Int32 = since("0+", default=-1)
    protocol_type: str | None = since("7+", default=None)
    protocol_name: str | None = since("0+", default="", nullable="7+")
    leader: str = since("0+", default="")
    skip_assignment: bool = since("9+", default=False)
    member_id: str = since("0+", default="")
    members: list[JoinGroupResponseMember] = since("0+", factory=list)
