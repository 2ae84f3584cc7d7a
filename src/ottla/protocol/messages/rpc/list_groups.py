"""ListGroups (key 16): the groups that a broker coordinates.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 flexible · v4 filter by state
(KIP-518) · v5 filter by type (KIP-848).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@request(key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = since("4+", factory=list)
    types_filter: list[str] = since("5+", factory=list)


@struct
class ListedGroup:
    group_id: str = since("0+", default="")
    protocol_type: str = since("0+", default="")
    group_state: str = since("4+", default="")
    group_type: str = since("5+", default="")


@response(key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("0+", default=0)
    groups: list[ListedGroup] = since("0+", factory=list)
