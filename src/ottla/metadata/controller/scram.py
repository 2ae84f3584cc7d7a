"""AlterUserScramCredentials.

The client sends the salted password, and the keys are derived from it here. The password is not stored (KIP-554).
"""

from collections import Counter

from ottla.metadata.controller.decision import Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import ScramUser
from ottla.protocol.errors import (
    ApiError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.protocol.messages.rpc.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.metadata_versions import SCRAM
from ottla.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, scram_keys

_BY_NUMBER = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}


def alter_scram_credentials(
    view: ControllerView, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Alter each credential, or answer it with its own error. A user can occur only once."""
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    times = Counter(alteration.name for alteration in alterations)
    records: list[object] = []
    results = []
    for alteration in {alteration.name: alteration for alteration in alterations}.values():
        result = AlterUserScramCredentialsResult(user=alteration.name, error_message=None)
        try:
            if times[alteration.name] > 1:
                raise DuplicateResource("A user credential cannot be altered twice in the same request")
            if view.metadata_version < SCRAM:
                raise UnsupportedVersion("The current metadata.version does not support SCRAM")
            records.append(_record(view, alteration))
        except ApiError as error:  # an invalid user fails alone
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return decide_atomically(records, AlterUserScramCredentialsResponse(results=results))


def _record(view: ControllerView, alteration: ScramCredentialDeletion | ScramCredentialUpsertion) -> object:
    if not alteration.name:
        raise UnacceptableCredential("Username must not be empty")
    if alteration.mechanism not in _BY_NUMBER:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if isinstance(alteration, ScramCredentialDeletion):
        if ScramUser(alteration.mechanism, alteration.name) not in view.image.scram:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)
    if alteration.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if alteration.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    keys = scram_keys(_BY_NUMBER[alteration.mechanism], bytes(alteration.salted_password))
    return UserScramCredentialRecord(
        name=alteration.name,
        mechanism=alteration.mechanism,
        salt=bytes(alteration.salt),
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=alteration.iterations,
    )
