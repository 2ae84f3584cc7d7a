"""DescribeGroups (key 15): the state and the members of classic groups.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 authorized operations (KIP-430)
· v4 instance ids (KIP-345) · v5 flexible · v6 a missing group is an error, with a message (KIP-1043).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@request(key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = since("0+", factory=list)
    include_authorized_operations: bool = since("3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("4+", default=None)
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    member_metadata: bytes = since("0+", default=b"")
    member_assignment: bytes = since("0+", default=b"")


@struct
class DescribedGroup:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("6+", default=None)
    group_id: str = since("0+", default="")
    group_state: str = since("0+", default="")
    protocol_type: str = since("0+", default="")
    protocol_data: str = since("0+", default="")
    members: list[DescribedGroupMember] = since("0+", factory=list)
    authorized_operations: Int32 = since("3+", default=-2_147_483_648)


@response(key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    groups: list[DescribedGroup] = since("0+", factory=list)
