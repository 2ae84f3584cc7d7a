"""LeaveGroup (key 13): remove members from a classic group.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 many members at once, static
ones too (KIP-345) · v4 flexible · v5 reason to leave (KIP-800).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class MemberIdentity:
    member_id: str = since("3+", default="")
    group_instance_id: str | None = since("3+", default=None)
    reason: str | None = since("5+", default=None)


@request(key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = since("0+", default="")
    member_id: str = since("0-2", default="")
    members: list[MemberIdentity] = since("3+", factory=list)


@struct
class MemberResponse:
    member_id: str = since("3+", default="")
    group_instance_id: str | None = since("3+", default="")
    error_code: Int16 = since("3+", default=0)


@response(key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("0+", default=0)
    members: list[MemberResponse] = since("3+", factory=list)
