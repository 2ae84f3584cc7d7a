"""Signed OAuth tokens are validated with the issuer's keys, with the same results as on Kafka."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from bench.harness.certificates import Authority
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode
from tests.unit.security.raw_connection import CLOSED, RawConnection, encoded
from tests.unit.security.secured_node import SecuredNode, login
from tests.unit.security.test_own_clients import names_of_topics

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
AUDIENCE, ISSUER = "kafka", "https://issuer.example/"
STRICT, OPEN = "STRICT", "OPEN"
"""STRICT requires an audience and an issuer, with other claim names. OPEN requires neither."""
HOUR_S = 3600


class Issuer:
    """An issuer of tokens: its keys, and a URL that serves the public keys."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "rsa-512": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "encryption": rsa.generate_private_key(65537, 2048),
        }
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                body = json.dumps(issuer.public).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Suppress the access log."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def public(self) -> Mapping[str, Any]:
        more = {"rsa-512": {"alg": "RS512"}, "encryption": {"use": "enc"}}
        return {"keys": [{**_public(key), "kid": name, **more.get(name, {})} for name, key in self.keys.items()]}

    def token(self, key: str = "rsa", algorithm: str = "RS256", *, kid: str | None = "", **claims: Any) -> str:
        """Return a token that is valid for an hour. Claims and a key id that are None are omitted."""
        now = time.time()
        given = {"sub": "ann", "iat": int(now) - 5, "exp": int(now) + HOUR_S, "aud": AUDIENCE, "iss": ISSUER} | claims
        header = {} if kid is None else {"kid": kid or key}
        signing = self.keys.get(key, key)
        claims = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(claims, signing, algorithm, header)

    def keyed(self, **claims: Any) -> str:
        """Return a token with unusual claims."""
        parts = (
            {"alg": "RS256", "kid": "rsa"},
            {"sub": "ann", "iat": int(time.time()), "aud": AUDIENCE, "iss": ISSUER} | claims,
        )
        text = ".".join(map(encoded, parts))
        signature = self.keys["rsa"].sign(text.encode(), PKCS1v15(), SHA256())
        return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _public(key: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return dict(kind.to_jwk(key.public_key(), as_dict=True))


def settings(url: str) -> dict[str, str]:
    values = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        f"{STRICT}:SASL_PLAINTEXT,{OPEN}:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.clock.skew.seconds": "10",
        f"listener.name.{STRICT.lower()}.oauthbearer.sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
        f"listener.name.{STRICT.lower()}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    }
    for listener in (STRICT, OPEN):
        prefix = f"listener.name.{listener.lower()}.oauthbearer.sasl"
        values[f"{prefix}.jaas.config"] = login("oauthbearer.OAuthBearerLoginModule")
        values[f"{prefix}.server.callback.handler.class"] = HANDLER
    return values


@contextmanager
def running(kind: str, folder: Path, issuer: Issuer) -> Iterator[SecuredNode]:
    given = {**SETTINGS, **settings(issuer.url)}
    node: KafkaNode | OttlaNode
    if kind == "kafka":
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}"
        node = KafkaNode(folder, given, (STRICT, OPEN), (allowed,))
    else:
        node = OttlaNode(folder, given, (STRICT, OPEN))
    node.format()
    with node.running():
        yield SecuredNode({name: f"127.0.0.1:{port}" for name, port in node.ports.items()}, Authority(folder))


class Both:
    """A node of Kafka and one of Ottla that trust the same issuer."""

    def __init__(self, issuer: Issuer, kafka: SecuredNode, ottla: SecuredNode) -> None:
        self.issuer = issuer
        self.kafka = kafka
        self.ottla = ottla

    def accept(self, token: str, listener: str = STRICT) -> bool:
        """Return whether both nodes accept a token. They must agree."""
        results = [responses_to(node, token, listener) for node in (self.kafka, self.ottla)]
        assert results[0] == results[1], f"Kafka: {results[0]}\nOttla: {results[1]}"
        return bool(results[0][-1] == "metadata")


def responses_to(node: SecuredNode, token: str, listener: str) -> list[Any]:
    connection = RawConnection(node, listener)
    results: list[Any] = []
    try:
        connection.handshake("OAUTHBEARER")
        for message in (f"n,,\x01auth=Bearer {token}\x01\x01".encode(), b"\x01"):
            answer = connection.send_unfiltered(SaslAuthenticateRequest(auth_bytes=message), 2)
            if answer == CLOSED:
                results.append(CLOSED)
                break
            lasts = answer.session_lifetime_ms > 0
            results.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes), lasts))
            if lasts or answer.error_code:
                break
        if results[-1] != CLOSED and results[-1][-1]:
            connection.request_metadata()
            results.append(connection.responses[-1])
        return results
    finally:
        connection.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    issuer = Issuer()
    with ExitStack() as stack:
        stack.callback(issuer.close)
        kafka = stack.enter_context(running("kafka", tmp_path_factory.mktemp("kafka"), issuer))
        ottla = stack.enter_context(running("ottla", tmp_path_factory.mktemp("ottla"), issuer))
        yield Both(issuer, kafka, ottla)


NESTED = base64.urlsafe_b64encode(b"[" * 150_000).decode() + "."


def with_header(token: str, header: Any) -> str:
    return f"{encoded(header)}.{token.partition('.')[2]}"


SIGNED: dict[str, tuple[Callable[[Issuer], str], bool]] = {
    "RS256": (lambda issuer: issuer.token(), True),
    "RS384": (lambda issuer: issuer.token(algorithm="RS384"), True),
    "PS256": (lambda issuer: issuer.token(algorithm="PS256"), True),
    "ES256": (lambda issuer: issuer.token("ec", "ES256"), True),
    "RS512 by a key for that": (lambda issuer: issuer.token("rsa-512", "RS512"), True),
    "RS256 by a key for RS512": (lambda issuer: issuer.token("rsa-512"), True),
    "a key for encryption": (lambda issuer: issuer.token("encryption"), False),
    "no name of a key, one that fits": (lambda issuer: issuer.token("ec", "ES256", kid=None), True),
    "another key's name": (lambda issuer: issuer.token(kid="rsa-512"), False),
    "a name of no key": (lambda issuer: issuer.token(kid="missing"), False),
    "the name of a key of another kind": (lambda issuer: issuer.token(kid="ec"), False),
    "a secret that everybody knows": (lambda issuer: issuer.token("s" * 32, "HS256", kid="rsa"), False),
    "no signature": (lambda issuer: issuer.token("", "none", kid="rsa"), False),
    "a signature cut off": (lambda issuer: issuer.token().rpartition(".")[0] + ".", False),
    "another signature": (lambda issuer: issuer.token()[:-8] + "AAAAAAAA", False),
    "two parts": (lambda issuer: issuer.token().rpartition(".")[0], False),
    "no token": (lambda issuer: "abc", False),
    "an algorithm that is no text": (
        lambda issuer: with_header(issuer.token(), {"alg": ["RS256"], "kid": "rsa"}),
        False,
    ),
    "a key's name that is no text": (lambda issuer: with_header(issuer.token(), {"alg": "RS256", "kid": 7}), False),
    "a header that is a list": (lambda issuer: with_header(issuer.token(), [1]), False),
    "a header nested without end": (lambda issuer: NESTED + issuer.token(), False),
    "an end that is no number": (lambda issuer: issuer.keyed(exp=str(int(time.time()) + HOUR_S)), False),
    "of whom is not said": (lambda issuer: issuer.token(sub=None), False),
    "of nobody": (lambda issuer: issuer.token(sub=""), False),
    "of spaces": (lambda issuer: issuer.token(sub="  "), False),
    "over": (lambda issuer: issuer.token(exp=int(time.time()) - 20), False),
    "no end": (lambda issuer: issuer.token(exp=None), False),
    "no beginning": (lambda issuer: issuer.token(iat=None), False),
    "of the future": (lambda issuer: issuer.token(iat=int(time.time()) + 600), True),
    "not yet": (lambda issuer: issuer.token(nbf=int(time.time()) + 600), False),
    "just now": (lambda issuer: issuer.token(nbf=int(time.time()) + 5), True),
    "for another": (lambda issuer: issuer.token(aud="shop"), False),
    "for several": (lambda issuer: issuer.token(aud=["shop", AUDIENCE]), True),
    "for whom is not said": (lambda issuer: issuer.token(aud=None), False),
    "by another": (lambda issuer: issuer.token(iss="https://other.example/"), False),
    "by whom is not said": (lambda issuer: issuer.token(iss=None), False),
    "scopes in a text": (lambda issuer: issuer.token(scope="read write"), True),
    "scopes in a list": (lambda issuer: issuer.token(scope=["read", "write"]), True),
    "no scopes": (lambda issuer: issuer.token(scope=[]), True),
    "a scope twice": (lambda issuer: issuer.token(scope=["read", "read"]), False),
    "an empty scope": (lambda issuer: issuer.token(scope=["read", " "]), False),
    "an empty text of scopes": (lambda issuer: issuer.token(scope=""), False),
    "a number for scopes": (lambda issuer: issuer.token(scope=3), True),
}


@pytest.mark.parametrize("name", list(SIGNED))
def test_valid_and_invalid_tokens(both: Both, name: str) -> None:
    make, expected = SIGNED[name]
    assert both.accept(make(both.issuer)) is expected


@pytest.mark.parametrize("key", ["rsa", "rsa-512"])
def test_a_key_that_is_not_named_is_found_among_several(both: Both, key: str) -> None:
    """Kafka tries only the first suitable key."""
    assert responses_to(both.ottla, both.issuer.token(key, kid=None), STRICT)[-1] == "metadata"


@pytest.mark.parametrize(
    "claims", [{"aud": None}, {"aud": None, "iss": None}, {}], ids=["for nobody", "by nobody", "for some"]
)
def test_tokens_without_an_expected_audience_or_issuer(both: Both, claims: dict[str, Any]) -> None:
    """A token with an audience is rejected if the listener expects none."""
    assert both.accept(both.issuer.token(**claims), OPEN) is ("aud" in claims)


def test_a_new_key_is_fetched_when_a_token_names_it(both: Both) -> None:
    both.issuer.keys["new"] = rsa.generate_private_key(65537, 2048)
    token = both.issuer.token("new")
    deadline = time.monotonic() + 30
    for node in (both.kafka, both.ottla):
        while responses_to(node, token, STRICT)[-1] != "metadata":
            assert time.monotonic() < deadline, "the key is unknown after half a minute"
            time.sleep(0.2)


def test_unknown_keys_do_not_cause_frequent_fetches(both: Both) -> None:
    before = both.issuer.asked
    for number in range(30):
        assert responses_to(both.ottla, both.issuer.token(kid=f"missing-{number}"), STRICT)[-1] != "metadata"
    assert both.issuer.asked - before <= 5


def test_a_client_with_an_issued_token_authenticates(both: Both, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(both.issuer.token())
    for node in (both.kafka, both.ottla):
        given = {
            "bootstrap.servers": node.addresses[STRICT],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": login("oauthbearer.OAuthBearerLoginModule"),
            "sasl.login.callback.handler.class": HANDLER.replace("Validator", "Login"),
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
        assert isinstance(names_of_topics(given), set)
