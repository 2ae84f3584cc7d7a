"""AlterUserScramCredentials (key 51): set or remove the SCRAM credentials of users."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class ScramCredentialDeletion:
    name: str = since("0+", default="")
    mechanism: Int8 = since("0+", default=0)


@struct
class ScramCredentialUpsertion:
    name: str = since("0+", default="")
    mechanism: Int8 = since("0+", default=0)
    iterations: Int32 = since("0+", default=0)
    salt: bytes = since("0+", default=b"")
    salted_password: bytes = since("0+", default=b"")


@request(key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = since("0+", factory=list)
    upsertions: list[ScramCredentialUpsertion] = since("0+", factory=list)


@struct
class AlterUserScramCredentialsResult:
    user: str = since("0+", default="")
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")


@response(key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = since("0+", factory=list)
