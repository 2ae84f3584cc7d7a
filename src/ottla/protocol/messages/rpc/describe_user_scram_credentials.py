"""DescribeUserScramCredentials (key 50): the SCRAM mechanisms of users, without their secrets."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class UserName:
    name: str = since("0+", default="")


@request(key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = since("0+", factory=list)


@struct
class CredentialInfo:
    mechanism: Int8 = since("0+", default=0)
    iterations: Int32 = since("0+", default=0)


@struct
class DescribeUserScramCredentialsResult:
    user: str = since("0+", default="")
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    credential_infos: list[CredentialInfo] = since("0+", factory=list)


@response(key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    results: list[DescribeUserScramCredentialsResult] = since("0+", factory=list)
