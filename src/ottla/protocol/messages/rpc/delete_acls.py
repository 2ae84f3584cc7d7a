"""DeleteAcls (key 31): remove the access rules that match filters.

v2 flexible · v3 users as a resource (KIP-373).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = since("1+", default=0)
    resource_name_filter: str | None = since("1+", default="")
    pattern_type_filter: Int8 = since("1+", default=3)
    principal_filter: str | None = since("1+", default="")
    host_filter: str | None = since("1+", default="")
    operation: Int8 = since("1+", default=0)
    permission_type: Int8 = since("1+", default=0)


@request(key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = since("1+", factory=list)


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default="")
    resource_type: Int8 = since("1+", default=0)
    resource_name: str = since("1+", default="")
    pattern_type: Int8 = since("1+", default=3)
    principal: str = since("1+", default="")
    host: str = since("1+", default="")
    operation: Int8 = since("1+", default=0)
    permission_type: Int8 = since("1+", default=0)


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default="")
    matching_acls: list[DeleteAclsMatchingAcl] = since("1+", factory=list)


@response(key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    filter_results: list[DeleteAclsFilterResult] = since("1+", factory=list)
