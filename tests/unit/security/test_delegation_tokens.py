"""Delegation tokens (KIP-48): made, told of, renewed, ended and come in with; the same on Kafka and on Ottla."""

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
from tests.unit.security.secured import PASSWORDS, SCRAM, Secured, login
from tests.unit.security.talk import CLOSED, Talk
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

Telling = Callable[[Secured], Any]


@contextmanager
def connected(node: Secured, listener: str = "SASL_PLAINTEXT") -> Iterator[Talk]:
    talk = Talk(node, listener)
    try:
        yield talk
    finally:
        talk.close()


@contextmanager
def speaking(node: Secured, user: str = "bob") -> Iterator[Talk]:
    """A connection of somebody who has proved by PLAIN who it is."""
    with connected(node) as talk:
        assert talk.shake("PLAIN")["error_code"] == 0
        assert talk.prove(f"\0{user}\0{PASSWORDS[user]}".encode())["error_code"] == 0
        yield talk


def same(kafka: Secured, ottla: Secured, tell: Telling) -> Any:
    """What both tell, which must be the same."""
    told = [tell(node) for node in (kafka, ottla)]
    assert told[0] == told[1], f"Kafka: {told[0]}\nOttla: {told[1]}"
    return told[0]


Both = Callable[[Telling], Any]


@pytest.fixture
def both(kafka_node: Secured, ottla_node: Secured) -> Both:
    return lambda tell: same(kafka_node, ottla_node, tell)


def creation(*renewers: str, owner: str | None = None, **more: Any) -> CreateDelegationTokenRequest:
    given = [CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in map(_parts, renewers)]
    kind, _, name = _parts(owner or ":")
    return CreateDelegationTokenRequest(
        renewers=given, owner_principal_type=kind, owner_principal_name=name, **{"max_lifetime_ms": -1, **more}
    )


def _parts(principal: str) -> tuple[str, str, str]:
    return principal.partition(":")


def made(talk: Talk, *renewers: str, **more: Any) -> Any:
    """A token that the broker has heard of: with Kafka, that takes a moment longer than the controller's answer."""
    answer = talk.whole(creation(*renewers, **more), 3)
    assert answer.error_code == 0, answer
    soon(lambda: answer.token_id in described(talk, everybodys=True), "the broker knows the token")
    return answer


def without_names(answer: Any) -> dict[str, Any]:
    """What is told of a token's making, but for when, and what only this one has."""
    found = {name: getattr(answer, name) for name in answer.__slots__ if not name.startswith("_")}
    begun = found.pop("issue_timestamp_ms")
    for name in ("expiry_timestamp_ms", "max_timestamp_ms"):
        found[name] -= begun
    found["is_made"] = begun > 0
    found["token_id"] = re.sub("[A-Za-z0-9_-]", "x", found["token_id"])
    found["hmac"] = len(found["hmac"])
    return found


def described(talk: Talk, *owners: str, version: int = 3, everybodys: bool = False) -> Any:
    """The tokens that somebody is told of, by id; or an error."""
    asked = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in map(_parts, owners)
    ]
    answer = talk.whole(DescribeDelegationTokenRequest(owners=None if everybodys else asked), version)
    return answer.error_code or {token.token_id: token for token in answer.tokens}


def come_in(talk: Talk, token_id: str, proof: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The answer to the last message of somebody who comes with a token."""
    client = ScramClient(mechanism, token_id, base64.b64encode(proof).decode(), uuid.uuid4().hex, is_token=True)
    assert talk.shake(mechanism)["error_code"] == 0
    first = talk.whole(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
    if first.error_code:
        return first
    final = client.answer(bytes(first.auth_bytes))
    assert final is not None
    return talk.whole(SaslAuthenticateRequest(auth_bytes=final), 2)


def gets_in(node: Secured, token_id: str, proof: bytes, mechanism: str = "SCRAM-SHA-256") -> bool:
    with connected(node) as talk:
        return not come_in(talk, token_id, proof, mechanism).error_code


def allow(node: Secured, operation: int, kind: int, name: str, principal: str) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
    with connected(node, "PLAINTEXT") as talk:
        answer = talk.whole(CreateAclsRequest(creations=[rule]), 3)
        assert answer.results[0].error_code == 0, answer


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("lifetime_ms", PERIODS)
def test_a_token_is_made(both: Both, version: int, lifetime_ms: int) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            return without_names(talk.whole(creation("User:ann", max_lifetime_ms=lifetime_ms), version))

    told = both(tell)
    assert (told["error_code"], told["principal_name"], told["hmac"]) == (0, "bob", 64)


def refusals(node: Secured, listener: str, enter: Callable[[Talk], None]) -> list[Any]:
    """What is said of all four requests to somebody who may not make them."""
    requests: list[tuple[Any, int]] = [
        *((creation("User:ann"), version) for version in (1, 2, 3)),
        (creation(owner="User:ann"), 3),
        (creation("Group:friends"), 3),
        *((RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), version) for version in (1, 2)),
        *((ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version) for version in (1, 2)),
        (DescribeDelegationTokenRequest(owners=None), 3),
        (DescribeDelegationTokenRequest(owners=[]), 3),
    ]
    with connected(node, listener) as talk:
        enter(talk)
        return [talk.whole(request, version) for request, version in requests]


def test_nobody_gets_tokens_who_proved_nothing(both: Both) -> None:
    for answer in both(lambda node: refusals(node, "PLAINTEXT", lambda talk: None)):
        assert answer.error_code == 64


def test_nobody_gets_tokens_by_a_token(both: Both) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            token = made(talk)

        def enter(talk: Talk) -> None:
            assert come_in(talk, token.token_id, token.hmac).error_code == 0

        return refusals(node, "SASL_PLAINTEXT", enter)

    for answer in both(tell):
        assert answer.error_code == 64


@pytest.mark.parametrize("mechanism", SCRAM)
def test_who_has_a_token_is_its_owner(both: Both, mechanism: str) -> None:
    def tell(node: Secured) -> Any:
        topic = new_topic(node)
        allow(node, DESCRIBE, 2, topic, "User:ann")
        with speaking(node, "ann") as talk:
            token = made(talk, max_lifetime_ms=HOUR_MS)
        with connected(node) as talk:
            answer = come_in(talk, token.token_id, token.hmac, mechanism)
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

    assert both(tell) == (0, True, (True, False))


def test_a_session_ends_with_its_token(both: Both) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk, connected(node) as other:
            token = made(talk, max_lifetime_ms=2_000)
            answer = come_in(other, token.token_id, token.hmac)
            other.is_let_in()
            time.sleep(2.5)
            other.is_let_in()
            return answer.session_lifetime_ms <= 2_000, other.heard[-2:]

    assert both(tell) == (True, ["metadata", CLOSED])


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
def test_others_do_not_come_in_with_it(both: Both, spoil: Callable[[str, bytes], tuple[str, bytes]]) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            token = made(talk)
        with connected(node) as talk:
            answer = come_in(talk, *spoil(token.token_id, token.hmac))
            return answer.error_code, answer.error_message

    code, _ = both(tell)
    assert code == 58


def test_a_token_is_no_user(both: Both) -> None:
    """Without the word that says so, its id is the name of nobody."""

    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            token = made(talk)
        client = ScramClient("SCRAM-SHA-256", token.token_id, base64.b64encode(token.hmac).decode(), "nonce")
        with connected(node) as talk:
            talk.shake("SCRAM-SHA-256")
            return talk.prove(client.first())

    assert both(tell)["error_code"] == 58


@pytest.mark.parametrize("period_ms", PERIODS)
@pytest.mark.parametrize("user", ["bob", "ann"], ids=["by its owner", "by a renewer"])
def test_tokens_are_renewed_and_ended(both: Both, period_ms: int, user: str) -> None:
    def tell(node: Secured) -> Any:
        told = []
        with speaking(node) as owner, speaking(node, user) as talk:
            token = made(owner, "User:ann", "User:carol", max_lifetime_ms=3 * DAY_MS)

            def is_known_to_expire(when: int) -> bool:
                found = described(owner, everybodys=True).get(token.token_id)
                return (found.expiry_timestamp if found else when) == when

            for request in (
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms),
                ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms),
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR_MS),
            ):
                answer = talk.whole(request, 2)
                if answer.error_code:
                    told.append((answer.error_code, answer.expiry_timestamp_ms))
                    continue
                later = answer.expiry_timestamp_ms - token.issue_timestamp_ms
                told.append((0, round(later / 60_000)))
                # Kafka's controller, too, decides on what brokers were told.
                soon(partial(is_known_to_expire, answer.expiry_timestamp_ms), "the change is known")
                time.sleep(0.1)
        return told

    told = both(tell)
    assert [code for code, _ in told] == [0, 0, {-1: 62, 0: 66}.get(period_ms, 0)]


def test_a_token_that_was_ended_lets_nobody_in(both: Both) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            token = made(talk)
            first = gets_in(node, token.token_id, token.hmac)
            talk.whole(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
            soon(lambda: not gets_in(node, token.token_id, token.hmac), "the token is gone")
            return first, token.token_id in described(talk, everybodys=True)

    assert both(tell) == (True, False)


def test_only_those_whom_it_concerns_change_a_token(both: Both) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as bob, speaking(node, "ann") as ann:
            token = made(bob)
            requests = (
                RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1),
                ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1),
                RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1),
                ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=HOUR_MS),
            )
            return [ann.whole(request, version) for request in requests for version in (1, 2)]

    assert {answer.error_code for answer in both(tell)} == {62, 63}


def test_tokens_are_made_for_others_by_those_who_may(node: Secured) -> None:
    name = uuid.uuid4().hex
    allow(node, CREATE_TOKENS, USER, f"User:{name}", "User:ann")
    with speaking(node) as bob, speaking(node, "ann") as ann:
        soon(lambda: bob.whole(creation(owner=f"User:{name}"), 3).error_code == 65, "the rule holds")
        refused = bob.whole(creation(owner=f"User:{name}"), 3)
        assert (refused.principal_name, refused.token_requester_principal_name) == (name, "bob")
        assert (refused.issue_timestamp_ms, refused.max_timestamp_ms, refused.hmac) == (-1, -1, b"")
        token = made(ann, owner=f"User:{name}")
        assert (token.principal_name, token.token_requester_principal_name) == (name, "ann")
        assert gets_in(node, token.token_id, token.hmac)

        def is_seen_by(talk: Talk) -> bool:
            return token.token_id in described(talk, f"User:{name}")

        assert is_seen_by(bob), "everybody may see what no rule is about"
        allow(node, DESCRIBE_TOKENS, USER, f"User:{name}", "User:carol")
        allow(node, DESCRIBE, TOKEN, token.token_id, "User:carol")
        soon(lambda: not is_seen_by(bob), "only carol may see it")
        assert is_seen_by(ann), "who requested it is told of it"
        renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR_MS)
        assert ann.whole(renewal, 2).error_code == 63, "but may not change it"
        allow(node, DESCRIBE_TOKENS, USER, f"User:{name}", "User:bob")
        soon(lambda: is_seen_by(bob), "bob may see tokens of the owner")


@pytest.mark.parametrize("kinds", [("Group:friends",), ("User:ann", "group:x"), (":ann",)])
def test_renewers_are_users(both: Both, kinds: tuple[str, ...]) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            return [talk.whole(creation(*kinds, owner=owner), 3) for owner in (None, "User:ann", "Team:ann")]

    for answer in both(tell):
        assert answer.error_code == 67


def test_an_owner_may_be_of_any_type(both: Both) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            odd = [creation(owner=owner) for owner in ("Team:red", ":red", "User:a:b")]
            odd.append(
                CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=None, max_lifetime_ms=-1)
            )
            return [without_names(talk.whole(request, 3)) for request in odd]

    both(tell)


def test_an_owner_without_a_type_is_an_error(both: Both) -> None:
    def tell(node: Secured) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name="ann", max_lifetime_ms=-1
        )
        with speaking(node) as talk:
            return talk.whole(request, 3)

    assert both(tell).error_code == -1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_are_told_of_by_owner(both: Both, version: int) -> None:
    def tell(node: Secured) -> Any:
        with speaking(node) as talk:
            bobs = made(talk, "User:ann", "User:carol").token_id
            anns = made(talk, owner="User:ann").token_id
            seen = []
            for owners in (("User:bob",), ("User:ann",), ("User:carol", "User:dan"), ("User:dan",), ("Group:bob",), ()):
                found = described(talk, *owners, version=version)
                seen.append((bobs in found, anns in found))
            found = described(talk, everybodys=True, version=version)
            token = found[bobs]
            renewers = [(each.principal_type, each.principal_name) for each in token.renewers]
            times = token.expiry_timestamp - token.issue_timestamp, token.max_timestamp - token.issue_timestamp
            names = token.principal_type, token.principal_name, token.token_requester_principal_name
            return seen, anns in found, renewers, times, names, len(token.hmac)

    seen, *_ = both(tell)
    assert seen == [(True, True), (True, True), (True, False), (False, False), (False, False), (False, False)]


def test_kafkas_tool_makes_renews_and_ends_tokens(ottla_node: Secured, tmp_path: Path) -> None:
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


def test_an_own_client_is_told_that_a_token_is_none(node: Secured) -> None:
    jaas = login("scram.ScramLoginModule", username="missing", password="guessed", tokenauth="true")
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        names_of_topics(node.client("SASL_SSL", "SCRAM-SHA-256", sasl__jaas__config=jaas))
