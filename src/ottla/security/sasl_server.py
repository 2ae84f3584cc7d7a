"""The server's side of SASL: an exchange for each mechanism.

An exchange responds to the client's messages until it has authenticated the user. Errors are raised as
SaslAuthenticationFailed; their messages are Kafka's and go to the client.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.protocol.errors import SaslAuthenticationFailed
from ottla.security.scram import MECHANISMS, ScramKeys, xor

_client_first = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,]|=2C|=3D)+))?,"
    r"(?P<bare>(?:m=[^,]+,)?n=(?P<user>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^\0,]+)*))"
).fullmatch
_client_final = re.compile(
    r"(?P<without>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
).fullmatch
_bearer_first = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\r\n\t]+\x01)*)\x01"
).fullmatch
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_SEPARATOR: Final = "\x01"
_BEARER: Final = "OAUTHBEARER"


def _invalid(mechanism: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )


class AuthenticatedUser(NamedTuple):
    """The user that an exchange authenticated."""

    user: str
    until_ms: int | None = None
    """When the credential expires, by the wall clock."""
    has_token: bool = False
    """Whether the client authenticated with a delegation token of the user."""


class ServerExchange(Protocol):
    """The server's side of one authentication."""

    authenticated: AuthenticatedUser | None

    def respond(self, message: bytes) -> bytes:
        """Return the response to a client's message. Raise SaslAuthenticationFailed."""
        ...


class PlainServer:
    """PLAIN: the server knows the passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.authenticated: AuthenticatedUser | None = None

    def respond(self, message: bytes) -> bytes:
        parts = message.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise SaslAuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslAuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationFailed("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authenticated = AuthenticatedUser(user)
        return b""


class ScramCredential(NamedTuple):
    """The stored form of a password."""

    salt: bytes
    keys: ScramKeys
    iterations: int


class ScramIdentity(NamedTuple):
    """A user that SCRAM can authenticate, with its credential."""

    authenticated: AuthenticatedUser
    credential: ScramCredential


FindScramIdentity = Callable[[str], ScramIdentity | None]
"""Looks up a user or token by name."""


class ScramServer:
    """SCRAM: the server verifies the client's proof of a password, and proves that it knows the stored keys.

    With Kafka's extension, the name can be the id of a delegation token.
    """

    def __init__(self, mechanism: str, find_user: FindScramIdentity, find_token: FindScramIdentity, nonce: str) -> None:
        self._name = mechanism
        self._hash = MECHANISMS[mechanism].hash
        self._find_user = find_user
        self._find_token = find_token
        self._nonce = nonce
        self._first: tuple[ScramIdentity, str, str] | None = None
        self.authenticated: AuthenticatedUser | None = None

    def respond(self, message: bytes) -> bytes:
        text = message.decode("utf-8", "replace")
        return self._begin(text) if self._first is None else self._check(text)

    def _begin(self, text: str) -> bytes:
        match = _client_first(text)
        if match is None:
            raise _invalid(self._name)
        name = match["user"].replace("=2C", ",").replace("=3D", "=")
        extensions = dict(pair.split("=", 1) for pair in match["extensions"].split(",") if pair)
        is_token = extensions.get("tokenauth", "").lower() == "true"
        identity = self._find_token(name) if is_token else self._find_user(name)
        if identity is None:
            raise _invalid(self._name)
        authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id != name:
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(identity.credential.salt).decode()
        first = f"r={nonce},s={salt},i={identity.credential.iterations}"
        self._first = identity, match["bare"], first
        return first.encode()

    def _check(self, text: str) -> bytes:
        assert self._first is not None
        (user, credential), bare, first = self._first
        match = _client_final(text)
        nonce = first[2 : first.index(",")]
        if match is None or match["nonce"] != nonce:
            raise _invalid(self._name)
        signed = ",".join((bare, first, match["without"])).encode()
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise _invalid(self._name) from None
        signature = hmac.digest(credential.keys.stored, signed, self._hash)
        if len(proof) != len(signature):
            raise _invalid(self._name)
        client_key = xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.keys.stored):
            raise _invalid(self._name)
        self.authenticated = user
        return b"v=" + base64.b64encode(hmac.digest(credential.keys.server, signed, self._hash))


class TokenClaims(NamedTuple):
    """The user and the expiry of a valid token."""

    user: str
    until_ms: int


CheckToken = Callable[[str], TokenClaims | None]
"""Validates a token. Returns None for an invalid one."""


class BearerServer:
    """OAUTHBEARER: the server validates a token of an issuer."""

    def __init__(self, check: CheckToken) -> None:
        self._check = check
        self._has_failed = False
        self.authenticated: AuthenticatedUser | None = None

    def respond(self, message: bytes) -> bytes:
        text = message.decode("utf-8", "replace")
        if self._has_failed:
            # The client has confirmed the error, so the exchange fails now.
            raise SaslAuthenticationFailed(_INVALID_TOKEN.decode())
        match = _bearer_first(text)
        pairs = dict(pair.split("=", 1) for pair in (match["pairs"] if match else "").split(_SEPARATOR) if pair)
        scheme, _, token = pairs.pop("auth", "").partition(" ")
        if match is None or scheme.lower() != "bearer" or not token.strip():
            raise _invalid(_BEARER)
        try:
            claims = self._check(token.strip())
        except RecursionError:  # from deeply nested JSON
            claims = None
        if claims is None:
            self._has_failed = True
            return _INVALID_TOKEN
        authorization_id = match["authzid"]
        if authorization_id and authorization_id != claims.user:
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id"
                f" ({authorization_id}) that is different from the token's principal name ({claims.user})"
            )
        self.authenticated = AuthenticatedUser(claims.user, claims.until_ms)
        return b""


class UnsignedTokens(NamedTuple):
    """The rules for tokens without a signature (Kafka's default, for tests and trusted networks)."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: frozenset[str] = frozenset()
    skew_ms: int = 0

    def check(self, token: str, now_ms: int) -> TokenClaims | None:
        """Return the claims of a valid token, else None."""
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        try:
            header, claims = _decoded(head), _decoded(body)
        except (ValueError, binascii.Error):
            return None
        if signature or not isinstance(header, dict) or header.get("alg") != "none" or not isinstance(claims, dict):
            return None
        user, expires, issued = claims.get(self.user_claim), _number(claims.get("exp")), claims.get("iat")
        if not isinstance(user, str) or not user or expires is None or now_ms - self.skew_ms >= expires * 1000:
            return None
        if issued is not None:
            began = _number(issued)
            if began is None or began >= expires or round(began * 1000) > now_ms + self.skew_ms:
                return None
        if not self.required_scope <= _scopes(claims.get(self.scope_claim)):
            return None
        return TokenClaims(user, round(expires * 1000))


def _decoded(part: str) -> object:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _scopes(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split())
    return frozenset(scope for scope in value if isinstance(scope, str)) if isinstance(value, list) else frozenset()
