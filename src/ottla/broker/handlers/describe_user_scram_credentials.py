"""DescribeUserScramCredentials (key 50): the SCRAM mechanisms of users, without their secrets (KIP-554)."""

from collections import Counter

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.handlers.describe_configs import ConfiguredNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import ApiError, DuplicateResource, ResourceNotFound
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@endpoint(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on=BOTH, guard=of_cluster(Operation.DESCRIBE))
def describe_user_scram_credentials(
    call: Call[ConfiguredNode], request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the credentials of the named users, or of all users."""
    credentials: dict[str, list[CredentialInfo]] = {}
    for key, credential in sorted(call.node.image.scram.items()):
        info = CredentialInfo(mechanism=key.mechanism, iterations=credential.iterations)
        credentials.setdefault(key.name, []).append(info)
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, times[user], credentials.get(user)) for user in times or credentials]
    )


def _result(user: str, times: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    error: ApiError | None = None
    if times > 1:
        error = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif infos is None:
        error = ResourceNotFound(f"Attempt to describe a user credential that does not exist: {user}")
    if error is not None:
        return DescribeUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos or [])
