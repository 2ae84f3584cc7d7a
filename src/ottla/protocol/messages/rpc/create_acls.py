"""CreateAcls (key 30): add access rules.

v2 flexible · v3 users as a resource (KIP-373).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class AclCreation:
    resource_type: Int8 = since("1+", default=0)
    resource_name: str = since("1+", default="")
    resource_pattern_type: Int8 = since("1+", default=3)
    principal: str = since("1+", default="")
    host: str = since("1+", default="")
    operation: Int8 = since("1+", default=0)
    permission_type: Int8 = since("1+", default=0)


@request(key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = since("1+", factory=list)


@struct
class AclCreationResult:
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default="")


@response(key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    results: list[AclCreationResult] = since("1+", factory=list)
