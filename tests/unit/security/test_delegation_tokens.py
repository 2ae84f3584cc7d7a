"""Delegation tokens (KIP-48) are created, described, renewed, expired and used, with the same results as on Kafka."""

import base64
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import AuthenticationError
from ottla.protocol.messages.rpc.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.rpc.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.rpc.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from ottla.security.scram import ScramClient
from tests.support.ottla_cluster import eventually
from tests.unit.security.raw_connection import CLOSED, RawConnection
from tests.unit.security.secured_node import PASSWORDS, SCRAM, SecuredNode, login
from tests.unit.security.test_clients import config_file, new_topic, tool
from tests.unit.security.test_own_clients import names_of_topics

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
COMMAND = "org.apache.kafka.tools.DelegationTokenCommand"
PERIODS = (-1, 0, HOUR_MS, 100 * DAY_MS)
CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE = 13, 14, 8
TOKEN, USER = 6, 7
ALLOW = 3

soon = partial(eventually, timeout_s=20)

Scenario = Callable[[SecuredNode], Any]


@contextmanager
def connected(node: SecuredNode, listener: str = "SASL_PLAINTEXT") -> Iterator[RawConnection]:
    connection = RawConnection(node, listener)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def authenticated(node: SecuredNode, user: str = "bob") -> Iterator[RawConnection]:
    """Open a connection that is authenticated with PLAIN."""
    with connected(node) as connection:
        assert connection.handshake("PLAIN")["error_code"] == 0
        assert connection.authenticate(f"\0{user}\0{PASSWORDS[user]}".encode())["error_code"] == 0
        yield connection


def assert_same(kafka: SecuredNode, ottla: SecuredNode, scenario: Scenario) -> Any:
    """Run a scenario on both nodes, and return the result, which must be the same."""
    results = [scenario(node) for node in (kafka, ottla)]
    assert results[0] == results[1], f"Kafka: {results[0]}\nOttla: {results[1]}"
    return results[0]


Both = Callable[[Scenario], Any]


@pytest.fixture
def both(kafka_node: SecuredNode, ottla_node: SecuredNode) -> Both:
    return lambda scenario: assert_same(kafka_node, ottla_node, scenario)


def creation(*renewers: str, owner: str | None = None, **more: Any) -> CreateDelegationTokenRequest:
    given = [CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in map(_parts, renewers)]
    kind, _, name = _parts(owner or ":")
    return CreateDelegationTokenRequest(
        renewers=given, owner_principal_type=kind, owner_principal_name=name, **{"max_lifetime_ms": -1, **more}
    )


def _parts(principal: str) -> tuple[str, str, str]:
    return principal.partition(":")


def create_token(connection: RawConnection, *renewers: str, **more: Any) -> Any:
    """Create a token, and wait until the broker knows it: with Kafka this takes longer than the controller's answer."""
    answer = connection.send_unfiltered(creation(*renewers, **more), 3)
    assert answer.error_code == 0, answer
    soon(lambda: answer.token_id in describe_tokens(connection, all_owners=True), "the broker knows the token")
    return answer


def without_names(answer: Any) -> dict[str, Any]:
    """Return a creation response without times and other values that differ between runs."""
    values = {name: getattr(answer, name) for name in answer.__slots__ if not name.startswith("_")}
    issued_ms = values.pop("issue_timestamp_ms")
    for name in ("expiry_timestamp_ms", "max_timestamp_ms"):
        values[name] -= issued_ms
    values["has_issue_time"] = issued_ms > 0
    values["token_id"] = re.sub("[A-Za-z0-9_-]", "x", values["token_id"])
    values["hmac"] = len(values["hmac"])
    return values


def describe_tokens(connection: RawConnection, *owners: str, version: int = 3, all_owners: bool = False) -> Any:
    """Return the described tokens by id, or an error code."""
    asked = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in map(_parts, owners)
    ]
    answer = connection.send_unfiltered(DescribeDelegationTokenRequest(owners=None if all_owners else asked), version)
    return answer.error_code or {token.token_id: token for token in answer.tokens}


def authenticate_with_token(
    connection: RawConnection, token_id: str, proof: bytes, mechanism: str = "SCRAM-SHA-256"
) -> Any:
    """Authenticate with a token, and return the last response."""
    client = ScramClient(mechanism, token_id, base64.b64encode(proof).decode(), uuid.uuid4().hex, is_token=True)
    assert connection.handshake(mechanism)["error_code"] == 0
    first = connection.send_unfiltered(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
    if first.error_code:
        return first
    final = client.answer(bytes(first.auth_bytes))
    assert final is not None
    return connection.send_unfiltered(SaslAuthenticateRequest(auth_bytes=final), 2)


def is_accepted(node: SecuredNode, token_id: str, proof: bytes, mechanism: str = "SCRAM-SHA-256") -> bool:
    with connected(node) as connection:
        return not authenticate_with_token(connection, token_id, proof, mechanism).error_code


def allow(node: SecuredNode, operation: int, kind: int, name: str, principal: str) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
    with connected(node, "PLAINTEXT") as connection:
        answer = connection.send_unfiltered(CreateAclsRequest(creations=[rule]), 3)
        assert answer.results[0].error_code == 0, answer


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("lifetime_ms", PERIODS)
def test_a_token_is_created(both: Both, version: int, lifetime_ms: int) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            return without_names(connection.send_unfiltered(creation("User:ann", max_lifetime_ms=lifetime_ms), version))

    results = both(scenario)
    assert (results["error_code"], results["principal_name"], results["hmac"]) == (0, "bob", 64)


def refusals(node: SecuredNode, listener: str, enter: Callable[[RawConnection], None]) -> list[Any]:
    """Return the responses to all four requests of a client that must not send them."""
    requests: list[tuple[Any, int]] = [
        *((creation("User:ann"), version) for version in (1, 2, 3)),
        (creation(owner="User:ann"), 3),
        (creation("Group:friends"), 3),
        *((RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), version) for version in (1, 2)),
        *((ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version) for version in (1, 2)),
        (DescribeDelegationTokenRequest(owners=None), 3),
        (DescribeDelegationTokenRequest(owners=[]), 3),
    ]
    with connected(node, listener) as connection:
        enter(connection)
        return [connection.send_unfiltered(request, version) for request, version in requests]


def test_unauthenticated_clients_get_no_tokens(both: Both) -> None:
    for answer in both(lambda node: refusals(node, "PLAINTEXT", lambda connection: None)):
        assert answer.error_code == 64


def test_clients_with_a_token_get_no_tokens(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            token = create_token(connection)

        def enter(connection: RawConnection) -> None:
            assert authenticate_with_token(connection, token.token_id, token.hmac).error_code == 0

        return refusals(node, "SASL_PLAINTEXT", enter)

    for answer in both(scenario):
        assert answer.error_code == 64


@pytest.mark.parametrize("mechanism", SCRAM)
def test_the_holder_of_a_token_acts_as_its_owner(both: Both, mechanism: str) -> None:
    def scenario(node: SecuredNode) -> Any:
        topic = new_topic(node)
        allow(node, DESCRIBE, 2, topic, "User:ann")
        with authenticated(node, "ann") as connection:
            token = create_token(connection, max_lifetime_ms=HOUR_MS)
        with connected(node) as connection:
            answer = authenticate_with_token(connection, token.token_id, token.hmac, mechanism)
        jaas = login(
            "scram.ScramLoginModule",
            username=token.token_id,
            password=base64.b64encode(token.hmac).decode(),
            tokenauth="true",
        )
        anns = node.client("SASL_SSL", mechanism, sasl__jaas__config=jaas)
        bobs = node.client("SASL_SSL", mechanism)
        is_seen = topic in names_of_topics(anns), topic in names_of_topics(bobs)
        return answer.error_code, 0 < answer.session_lifetime_ms <= HOUR_MS, is_seen

    assert both(scenario) == (0, True, (True, False))


def test_a_session_ends_with_its_token(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection, connected(node) as other:
            token = create_token(connection, max_lifetime_ms=2_000)
            answer = authenticate_with_token(other, token.token_id, token.hmac)
            other.request_metadata()
            time.sleep(2.5)
            other.request_metadata()
            return answer.session_lifetime_ms <= 2_000, other.responses[-2:]

    assert both(scenario) == (True, ["metadata", CLOSED])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token_id, proof: ("missing", proof),
        lambda token_id, proof: (token_id, proof[::-1]),
        lambda token_id, proof: (token_id, b""),
        lambda token_id, proof: ("bob", PASSWORDS["bob"].encode()),
    ],
    ids=["another token", "another proof", "no proof", "a user"],
)
def test_a_wrong_token_is_rejected(both: Both, spoil: Callable[[str, bytes], tuple[str, bytes]]) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            token = create_token(connection)
        with connected(node) as connection:
            answer = authenticate_with_token(connection, *spoil(token.token_id, token.hmac))
            return answer.error_code, answer.error_message

    code, _ = both(scenario)
    assert code == 58


def test_a_token_id_is_not_a_user(both: Both) -> None:
    """Without the extension `tokenauth`, its id is an unknown user."""

    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            token = create_token(connection)
        client = ScramClient("SCRAM-SHA-256", token.token_id, base64.b64encode(token.hmac).decode(), "nonce")
        with connected(node) as connection:
            connection.handshake("SCRAM-SHA-256")
            return connection.authenticate(client.first())

    assert both(scenario)["error_code"] == 58


@pytest.mark.parametrize("period_ms", PERIODS)
@pytest.mark.parametrize("user", ["bob", "ann"], ids=["by its owner", "by a renewer"])
def test_tokens_are_renewed_and_expired(both: Both, period_ms: int, user: str) -> None:
    def scenario(node: SecuredNode) -> Any:
        results = []
        with authenticated(node) as owner, authenticated(node, user) as connection:
            token = create_token(owner, "User:ann", "User:carol", max_lifetime_ms=3 * DAY_MS)

            def is_known_to_expire(when: int) -> bool:
                described = describe_tokens(owner, all_owners=True).get(token.token_id)
                return (described.expiry_timestamp if described else when) == when

            for request in (
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms),
                ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms),
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR_MS),
            ):
                answer = connection.send_unfiltered(request, 2)
                if answer.error_code:
                    results.append((answer.error_code, answer.expiry_timestamp_ms))
                    continue
                later = answer.expiry_timestamp_ms - token.issue_timestamp_ms
                results.append((0, round(later / 60_000)))
                # Kafka's controller, too, decides with the brokers' view.
                soon(partial(is_known_to_expire, answer.expiry_timestamp_ms), "the change is known")
                time.sleep(0.1)
        return results

    results = both(scenario)
    assert [code for code, _ in results] == [0, 0, {-1: 62, 0: 66}.get(period_ms, 0)]


def test_an_expired_token_is_rejected(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            token = create_token(connection)
            first = is_accepted(node, token.token_id, token.hmac)
            connection.send_unfiltered(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
            soon(lambda: not is_accepted(node, token.token_id, token.hmac), "the token is gone")
            return first, token.token_id in describe_tokens(connection, all_owners=True)

    assert both(scenario) == (True, False)


def test_only_the_owner_and_renewers_change_a_token(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as bob, authenticated(node, "ann") as ann:
            token = create_token(bob)
            requests = (
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1),
                ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1),
                RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1),
                ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=HOUR_MS),
            )
            return [ann.send_unfiltered(request, version) for request in requests for version in (1, 2)]

    assert {answer.error_code for answer in both(scenario)} == {62, 63}


def test_authorized_clients_create_tokens_for_others(node: SecuredNode) -> None:
    name = uuid.uuid4().hex
    allow(node, CREATE_TOKENS, USER, f"User:{name}", "User:ann")
    with authenticated(node) as bob, authenticated(node, "ann") as ann:
        soon(lambda: bob.send_unfiltered(creation(owner=f"User:{name}"), 3).error_code == 65, "the rule holds")
        refused = bob.send_unfiltered(creation(owner=f"User:{name}"), 3)
        assert (refused.principal_name, refused.token_requester_principal_name) == (name, "bob")
        assert (refused.issue_timestamp_ms, refused.max_timestamp_ms, refused.hmac) == (-1, -1, b"")
        token = create_token(ann, owner=f"User:{name}")
        assert (token.principal_name, token.token_requester_principal_name) == (name, "ann")
        assert is_accepted(node, token.token_id, token.hmac)

        def can_describe(connection: RawConnection) -> bool:
            return token.token_id in describe_tokens(connection, f"User:{name}")

        assert can_describe(bob), "without a rule, everybody may describe it"
        allow(node, DESCRIBE_TOKENS, USER, f"User:{name}", "User:carol")
        allow(node, DESCRIBE, TOKEN, token.token_id, "User:carol")
        soon(lambda: not can_describe(bob), "only carol may see it")
        assert can_describe(ann), "the requester may describe it"
        renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR_MS)
        assert ann.send_unfiltered(renewal, 2).error_code == 63, "but may not change it"
        allow(node, DESCRIBE_TOKENS, USER, f"User:{name}", "User:bob")
        soon(lambda: can_describe(bob), "bob may see tokens of the owner")


@pytest.mark.parametrize("kinds", [("Group:friends",), ("User:ann", "group:x"), (":ann",)])
def test_renewers_must_be_users(both: Both, kinds: tuple[str, ...]) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            return [
                connection.send_unfiltered(creation(*kinds, owner=owner), 3) for owner in (None, "User:ann", "Team:ann")
            ]

    for answer in both(scenario):
        assert answer.error_code == 67


def test_an_owner_may_be_of_any_type(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            odd = [creation(owner=owner) for owner in ("Team:red", ":red", "User:a:b")]
            odd.append(
                CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=None, max_lifetime_ms=-1)
            )
            return [without_names(connection.send_unfiltered(request, 3)) for request in odd]

    both(scenario)


def test_an_owner_without_a_type_is_an_error(both: Both) -> None:
    def scenario(node: SecuredNode) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name="ann", max_lifetime_ms=-1
        )
        with authenticated(node) as connection:
            return connection.send_unfiltered(request, 3)

    assert both(scenario).error_code == -1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_are_described_by_owner(both: Both, version: int) -> None:
    def scenario(node: SecuredNode) -> Any:
        with authenticated(node) as connection:
            bobs = create_token(connection, "User:ann", "User:carol").token_id
            anns = create_token(connection, owner="User:ann").token_id
            seen = []
            for owners in (("User:bob",), ("User:ann",), ("User:carol", "User:dan"), ("User:dan",), ("Group:bob",), ()):
                described = describe_tokens(connection, *owners, version=version)
                seen.append((bobs in described, anns in described))
            described = describe_tokens(connection, all_owners=True, version=version)
            token = described[bobs]
            renewers = [(renewer.principal_type, renewer.principal_name) for renewer in token.renewers]
            times = token.expiry_timestamp - token.issue_timestamp, token.max_timestamp - token.issue_timestamp
            names = token.principal_type, token.principal_name, token.token_requester_principal_name
            return seen, anns in described, renewers, times, names, len(token.hmac)

    seen, *_ = both(scenario)
    assert seen == [(True, True), (True, True), (True, False), (False, False), (False, False), (False, False)]


def test_kafkas_tool_creates_renews_and_expires_tokens(ottla_node: SecuredNode, tmp_path: Path) -> None:
    config = config_file(tmp_path, ottla_node.client("SASL_SSL", "SCRAM-SHA-256"))
    reach = ("--bootstrap-server", ottla_node.addresses["SASL_SSL"], "--command-config", config)
    said = tool(COMMAND, *reach, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carol")
    row = next(line for line in said.splitlines() if "User:bob" in line).split()
    token_id, proof = row[0], row[1]
    assert "User:carol" in said
    assert token_id in tool(COMMAND, *reach, "--describe", "--owner-principal", "User:bob")
    assert "Completed renew operation" in tool(COMMAND, *reach, "--renew", "--renew-time-period", "-1", "--hmac", proof)
    jaas = login("scram.ScramLoginModule", username=token_id, password=proof, tokenauth="true")
    topic = new_topic(ottla_node)
    (tmp_path / "holder").mkdir()
    holder = config_file(tmp_path / "holder", ottla_node.client("SASL_SSL", "SCRAM-SHA-512", sasl__jaas__config=jaas))
    listed = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", ottla_node.addresses["SASL_SSL"], "--command-config", holder, "--list"),
    )
    assert topic in listed.split()
    assert "Completed expire operation" in tool(
        COMMAND, *reach, "--expire", "--expiry-time-period", "-1", "--hmac", proof
    )
    assert token_id not in tool(COMMAND, *reach, "--describe", "--owner-principal", "User:bob")


def test_ottlas_client_reports_an_unknown_token(node: SecuredNode) -> None:
    jaas = login("scram.ScramLoginModule", username="missing", password="guessed", tokenauth="true")
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        names_of_topics(node.client("SASL_SSL", "SCRAM-SHA-256", sasl__jaas__config=jaas))
