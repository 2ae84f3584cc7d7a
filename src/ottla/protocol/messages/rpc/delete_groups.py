"""DeleteGroups (key 42): delete groups that have no members, with their offsets.

v1 responds before it throttles (KIP-219) · v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32


@request(key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = since("0+", factory=list)


@struct
class DeletableGroupResult:
    group_id: str = since("0+", default="")
    error_code: Int16 = since("0+", default=0)


@response(key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    results: list[DeletableGroupResult] = since("0+", factory=list)
