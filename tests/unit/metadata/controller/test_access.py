"""Quotas, ACLs, SCRAM credentials, delegation tokens and producer ids."""

import base64
import hashlib
from itertools import count

import pytest

from ottla.metadata.controller import delegation_tokens
from ottla.metadata.controller.acls import create_acls, delete_acls
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.producer_ids import allocate_producer_ids
from ottla.metadata.controller.quotas import alter_client_quotas
from ottla.metadata.controller.scram import alter_scram_credentials
from ottla.metadata.image.values import ScramUser
from ottla.protocol.errors import (
    ApiError,
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DuplicateResource,
    InvalidPrincipalType,
    InvalidRequest,
    ResourceNotFound,
    StaleBrokerEpoch,
    UnacceptableCredential,
    UnknownServerError,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import ProducerIdsRecord
from ottla.protocol.messages.rpc import alter_client_quotas as quotas
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.rpc.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.rpc.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.rpc.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.rpc.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest
from tests.unit.metadata.controller.cluster import Cluster

RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:ann",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def limit(
    cluster: Cluster, entity: dict[str, str | None], *ops: tuple[str, float | None], validate_only: bool = False
) -> int:
    entry = quotas.EntryData(
        entity=[quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    request = quotas.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    decision = alter_client_quotas(cluster.view, request, unknown_hosts={"no.host"})
    return cluster.apply(decision).entries[0].error_code


def test_quotas_are_set_and_removed() -> None:
    cluster = Cluster()
    ann: dict[str, str | None] = {"user": "ann", "client-id": None}
    assert limit(cluster, ann, ("producer_byte_rate", 100.0), ("request_percentage", 12.5)) == 0
    entity = (("client-id", None), ("user", "ann"))
    assert dict(cluster.image.quota(entity)) == {"producer_byte_rate": 100.0, "request_percentage": 12.5}
    assert limit(cluster, ann, ("producer_byte_rate", 100.0), ("consumer_byte_rate", None)) == 0
    assert cluster.written == []
    assert limit(cluster, ann, ("producer_byte_rate", None), ("request_percentage", None), validate_only=True) == 0
    assert limit(cluster, ann, ("producer_byte_rate", None), ("request_percentage", None)) == 0
    assert not cluster.image.quotas


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "some.host", None])
def test_connections_are_limited_by_address(address: str | None) -> None:
    assert limit(Cluster(), {"ip": address}, ("connection_creation_rate", 5.0)) == 0


@pytest.mark.parametrize(
    ("entity", "op"),
    [
        ({}, ("producer_byte_rate", 1.0)),
        ({"user": ""}, ("producer_byte_rate", 1.0)),
        ({"team": "x"}, ("producer_byte_rate", 1.0)),
        ({"ip": "10.0.0.1", "user": "ann"}, ("connection_creation_rate", 1.0)),
        ({"ip": "no.host"}, ("connection_creation_rate", 1.0)),
        ({"ip": "10.0.0.1"}, ("producer_byte_rate", 1.0)),
        ({"ip": "10.0.0.1"}, ("connection_creation_rate", 2.0**31)),
        ({"user": "ann"}, ("connection_creation_rate", 1.0)),
        ({"user": "ann"}, ("producer_byte_rate", 1.5)),
        ({"user": "ann"}, ("producer_byte_rate", -1.0)),
        ({"user": "ann"}, ("producer_byte_rate", 1e30)),
        ({"user": "ann"}, ("producer_byte_rate", float("nan"))),
    ],
)
def test_invalid_quotas_are_rejected(entity: dict[str, str | None], op: tuple[str, float | None]) -> None:
    assert limit(Cluster(), entity, op) == InvalidRequest.code


def allow(cluster: Cluster, *rules: dict[str, object]) -> list[int]:
    request = CreateAclsRequest(creations=[AclCreation(**{**RULE, **rule}) for rule in rules])  # type: ignore[arg-type]
    reply = cluster.apply(create_acls(cluster.view, request, new_id=cluster.new_id))
    return [each.error_code for each in reply.results]


def forbid(cluster: Cluster, **wanted: object) -> list[str] | int:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**{**ANYTHING, **wanted})])  # type: ignore[arg-type]
    [result] = cluster.apply(delete_acls(cluster.view, request)).filter_results
    return result.error_code or sorted(each.resource_name for each in result.matching_acls)


def test_an_acl_is_added_once() -> None:
    cluster = Cluster()
    assert allow(cluster, {}, {}, {"operation": 4}) == [0, 0, 0]
    assert len(cluster.image.acls) == 2
    assert allow(cluster, {}) == [0]
    assert cluster.written == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
        {"resource_name": ""},
        {"principal": "ann"},
    ],
)
def test_an_invalid_acl_is_rejected(wrong: dict[str, object]) -> None:
    assert allow(Cluster(), wrong, {}) == [InvalidRequest.code, 0]


def test_acls_are_removed_by_filters() -> None:
    names: list[dict[str, object]] = [
        {"resource_name": "*"},
        {"resource_name": "orders"},
        {"resource_name": "ord", "resource_pattern_type": 4},
        {"resource_name": "other"},
    ]
    for wanted, found in (
        ({"resource_name_filter": "orders"}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, ["*", "ord", "orders"]),
        ({"pattern_type_filter": 4}, ["ord"]),
        ({"principal_filter": "User:bob"}, []),
        ({}, ["*", "ord", "orders", "other"]),
    ):
        cluster = Cluster()
        allow(cluster, *names)
        assert forbid(cluster, **wanted) == found
        assert len(cluster.image.acls) == 4 - len(found)


def test_an_unknown_filter_is_rejected() -> None:
    assert forbid(Cluster(), operation=0) == InvalidRequest.code
    assert forbid(Cluster(), pattern_type_filter=0) == InvalidRequest.code


def credentials(cluster: Cluster, *alterations: ScramCredentialDeletion | ScramCredentialUpsertion) -> list[int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in alterations if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in alterations if isinstance(each, ScramCredentialUpsertion)],
    )
    reply = cluster.apply(alter_scram_credentials(cluster.view, request))
    return [each.error_code for each in reply.results]


def password(name: str = "ann", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def test_a_credential_is_derived_from_the_salted_password_as_in_rfc_7677() -> None:
    cluster = Cluster()
    upsertion = password()
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    upsertion.salted_password = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    assert credentials(cluster, upsertion) == [0]
    credential = cluster.image.scram[ScramUser(1, "ann")]
    assert (credential.salt, credential.iterations) == (b"salt", 4096)
    assert base64.b64encode(credential.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(credential.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert credentials(cluster, ScramCredentialDeletion(name="ann", mechanism=1)) == [0]
    assert not cluster.image.scram


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        (password(name=""), UnacceptableCredential),
        (password(mechanism=3), UnsupportedSaslMechanism),
        (password(iterations=4095), UnacceptableCredential),
        (password(iterations=16_385), UnacceptableCredential),
        (ScramCredentialDeletion(name="ann", mechanism=1), ResourceNotFound),
    ],
)
def test_an_unacceptable_credential_is_rejected(
    alteration: ScramCredentialDeletion | ScramCredentialUpsertion, error: type[ApiError]
) -> None:
    assert credentials(Cluster(), alteration) == [error.code]


def test_scram_needs_3_5_and_a_user_can_occur_once() -> None:
    assert credentials(Cluster(), password(), password(mechanism=2)) == [DuplicateResource.code]
    assert credentials(Cluster(metadata_version=10), password()) == [UnsupportedVersion.code]


SECRET = {"delegation.token.secret.key": "hush"}
DAY_MS = 86_400_000


def make_token(cluster: Cluster, principal: str = "User:ann", **request: object) -> bytes:
    ids = (f"token-{number}" for number in count())
    decision = delegation_tokens.create_delegation_token(
        cluster.view,
        CreateDelegationTokenRequest(**request),  # type: ignore[arg-type]
        principal=principal,
        now_ms=0,
        new_token_id=lambda: next(ids),
    )
    return cluster.apply(decision).hmac


def test_a_token_is_renewed_up_to_its_maximum_lifetime() -> None:
    cluster = Cluster(settings=SECRET)
    named = make_token(cluster, renewers=[CreatableRenewers(principal_type="User", principal_name="bob")])
    token = cluster.image.tokens["token-0"]
    assert (token.expiration_timestamp, token.max_timestamp) == (DAY_MS, 7 * DAY_MS)
    request = RenewDelegationTokenRequest(hmac=named, renew_period_ms=-1)
    with pytest.raises(DelegationTokenOwnerMismatch):
        delegation_tokens.renew_delegation_token(cluster.view, request, principal="User:eve", now_ms=1)
    reply = cluster.apply(
        delegation_tokens.renew_delegation_token(cluster.view, request, principal="User:bob", now_ms=DAY_MS)
    )
    assert reply.expiry_timestamp_ms == 2 * DAY_MS
    with pytest.raises(DelegationTokenExpired):
        delegation_tokens.renew_delegation_token(cluster.view, request, principal="User:bob", now_ms=3 * DAY_MS)
    with pytest.raises(DelegationTokenNotFound):
        delegation_tokens.renew_delegation_token(
            cluster.view, RenewDelegationTokenRequest(hmac=b"x"), principal="User:ann", now_ms=1
        )


def test_a_token_is_removed_on_request_or_when_it_expires() -> None:
    cluster = Cluster(settings=SECRET)
    named = make_token(cluster)
    later = ExpireDelegationTokenRequest(hmac=named, expiry_time_period_ms=10)
    reply = cluster.apply(
        delegation_tokens.expire_delegation_token(cluster.view, later, principal="User:ann", now_ms=5)
    )
    assert reply.expiry_timestamp_ms == cluster.image.tokens["token-0"].expiration_timestamp == 15
    assert delegation_tokens.remove_expired_tokens(cluster.view, now_ms=15).records == ()
    cluster.apply(delegation_tokens.remove_expired_tokens(cluster.view, now_ms=16))
    assert not cluster.image.tokens
    named = make_token(cluster)
    at_once = ExpireDelegationTokenRequest(hmac=named, expiry_time_period_ms=-1)
    cluster.apply(delegation_tokens.expire_delegation_token(cluster.view, at_once, principal="User:ann", now_ms=5))
    assert not cluster.image.tokens


def test_tokens_need_a_secret_and_users() -> None:
    with pytest.raises(DelegationTokenAuthDisabled):
        make_token(Cluster())
    with pytest.raises(UnsupportedVersion):
        make_token(Cluster(settings=SECRET, metadata_version=13))
    with pytest.raises(InvalidPrincipalType):
        make_token(Cluster(settings=SECRET), renewers=[CreatableRenewers(principal_type="Group", principal_name="g")])


def test_producer_ids_come_in_blocks_that_never_repeat() -> None:
    cluster = Cluster(1, 2)
    starts = []
    for broker in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=cluster.epochs[broker])
        reply = cluster.apply(allocate_producer_ids(cluster.view, request))
        assert reply.producer_id_len == 1_000
        starts.append(reply.producer_id_start)
    assert starts == [0, 1_000, 2_000]
    with pytest.raises(StaleBrokerEpoch):
        allocate_producer_ids(cluster.view, AllocateProducerIdsRequest(broker_id=1, broker_epoch=99))


def test_producer_ids_can_run_out() -> None:
    cluster = Cluster(1)
    cluster.apply(Decision((ProducerIdsRecord(next_producer_id=(1 << 63) - 10),), None))
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epochs[1])
    with pytest.raises(UnknownServerError):
        allocate_producer_ids(cluster.view, request)
