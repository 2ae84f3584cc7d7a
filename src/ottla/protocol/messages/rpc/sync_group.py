"""SyncGroup (key 14): the leader of a classic group sends the assignment, and each member gets its own part.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 static members (KIP-345) · v4
flexible · v5 protocol type and name both ways, to be checked (KIP-559).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@struct
class SyncGroupRequestAssignment:
    member_id: str = since("0+", default="")
    assignment: bytes = since("0+", default=b"")


@request(key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = since("0+", default="")
    generation_id: Int32 = since("0+", default=0)
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("3+", default=None)
    protocol_type: str | None = since("5+", default=None)
    protocol_name: str | None = since("5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = since("0+", factory=list)


@response(key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("0+", default=0)
    protocol_type: str | None = since("5+", default=None)
    protocol_name: str | None = since("5+", default=None)
    assignment: bytes = since("0+", default=b"")
