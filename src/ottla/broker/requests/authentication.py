"""Listeners with SASL: which requests a client may send before it is authenticated, and when it must reauthenticate.

A client sends ApiVersions at most once, then SaslHandshake with a mechanism, then tokens: in SaslAuthenticate requests,
or without headers after a handshake of version 0. Any other request closes the connection, and so does a failed
authentication, after a delay. Where sessions are limited (KIP-368), a client reauthenticates with another handshake. If
its session expires before, its next request closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from ottla.broker.requests.call import Client, Exchange
from ottla.protocol.errors import ApiError, IllegalSaslState, SaslAuthenticationFailed
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.security.sasl_server import AuthenticatedUser, ServerExchange

# Every request is compared with it: `ApiKey.SASL_HANDSHAKE` takes 30 ns (Python 3.11), a global almost nothing.
_HANDSHAKE: Final = ApiKey.SASL_HANDSHAKE
_MIN_REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000
"""The minimum time between two reauthentications of a connection, as in Kafka."""
_api_key = struct.Struct(">h").unpack_from
_length = struct.Struct(">i").pack


class SaslState(Enum):
    """The step of SASL that a connection has reached."""

    NEW = auto()
    EXPECTS_HANDSHAKE = auto()
    EXPECTS_TOKEN = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


@dataclass(frozen=True)
class SaslRules:
    """What one listener demands of its clients."""

    exchanges: Mapping[str, Callable[[], ServerExchange]]
    """Mechanism → starts an exchange."""
    session_ms: Mapping[str, int]
    """Mechanism → after how long a client must reauthenticate; 0 if never."""
    max_token_bytes: int
    failure_delay_ms: int
    now_ms: Callable[[], int]
    now_ns: Callable[[], int]

    @property
    def mechanisms(self) -> list[str]:
        return list(self.exchanges)


class Authentication:
    """The SASL authentication of one connection."""

    __slots__ = (
        "_exchange",
        "_expires_ns",
        "_mismatch",
        "_reauthenticated_ns",
        "_user",
        "is_bare",
        "mechanism",
        "rules",
        "state",
    )

    def __init__(self, rules: SaslRules) -> None:
        self.rules = rules
        self.state = SaslState.NEW
        self.mechanism = ""
        self.is_bare = False
        """Whether tokens come without request headers."""
        self._exchange: ServerExchange | None = None
        self._user: str | None = None
        """The user of the first authentication, which reauthentications must keep."""
        self._mismatch: str | None = None
        """Why the exchange under way must fail: it uses another mechanism than the first one."""
        self._reauthenticated_ns: int | None = None
        self._expires_ns: int | None = None

    @property
    def is_expired(self) -> bool:
        """Whether the client's session is over."""
        return self._expires_ns is not None and self.rules.now_ns() >= self._expires_ns

    @property
    def may_reauthenticate(self) -> bool:
        """Whether the session is limited, and the last reauthentication at least a second ago."""
        if self._expires_ns is None:
            return False
        last_ns = self._reauthenticated_ns
        return last_ns is None or self.rules.now_ns() - last_ns >= _MIN_REAUTHENTICATION_INTERVAL_NS

    def begin_reauthentication(self) -> None:
        """Expect a handshake from a client that is authenticated."""
        self._reauthenticated_ns = self.rules.now_ns()
        self.state = SaslState.EXPECTS_HANDSHAKE

    def begin_exchange(self, mechanism: str, *, bare: bool) -> bool:
        """Begin an exchange; return False if the listener does not offer the mechanism."""
        begin = self.rules.exchanges.get(mechanism)
        if begin is None:
            self.state = SaslState.FAILED
            return False
        if self._user is not None and mechanism != self.mechanism:
            self._mismatch = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism"
                f" '{self.mechanism}'"
            )
        else:
            self.mechanism = mechanism
        self._exchange = begin()
        self.is_bare = bare
        self.state = SaslState.EXPECTS_TOKEN
        return True

    def respond(self, client: Client, token: bytes) -> tuple[bytes, int]:
        """Return the answer to a token, and the lifetime of the session in milliseconds once it begins; 0 is no limit.

        Raises ApiError if the token does not authenticate the client.
        """
        if self.state is not SaslState.EXPECTS_TOKEN or self._exchange is None:
            raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
        try:
            if self._mismatch is not None:
                raise SaslAuthenticationFailed(self._mismatch)
            answer = self._exchange.respond(token)
            user = self._exchange.authenticated
            if user is None:
                return answer, 0
            self._check_same_user(user)
        except SaslAuthenticationFailed:
            self.state = SaslState.FAILED
            raise
        return answer, self._begin_session(client, user)

    def _check_same_user(self, authenticated: AuthenticatedUser) -> None:
        if self._user not in (None, authenticated.user):
            raise SaslAuthenticationFailed(
                f"Cannot change principals during re-authentication from User.{self._user}: User.{authenticated.user}"
            )

    def _begin_session(self, client: Client, authenticated: AuthenticatedUser) -> int:
        self._user = authenticated.user
        self._exchange = None
        self.state = SaslState.AUTHENTICATED
        client.principal = f"User:{authenticated.user}"
        client.has_token = authenticated.has_token
        session_ms = self.rules.session_ms[self.mechanism]
        limits_ms = [session_ms] if session_ms > 0 else []
        if authenticated.until_ms is not None:
            limits_ms.append(max(authenticated.until_ms - self.rules.now_ms(), 0))
        if not limits_ms:
            self._expires_ns = None
            return 0
        self._expires_ns = self.rules.now_ns() + min(limits_ms) * 1_000_000
        return min(limits_ms)


_ALLOWED: Final[Mapping[SaslState, tuple[ApiKey, ...]]] = {
    SaslState.NEW: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    SaslState.EXPECTS_HANDSHAKE: (ApiKey.SASL_HANDSHAKE,),
    SaslState.EXPECTS_TOKEN: (ApiKey.SASL_AUTHENTICATE,),
    SaslState.AUTHENTICATED: (),
    SaslState.FAILED: (),
}


class GatedExchange(Exchange, Protocol):
    """A request whose connection can be closed after its answer."""

    def hang_up(self, after_ms: int, why: str) -> None: ...


class SaslGate:
    """Passes on the requests of authenticated clients, and lets other clients authenticate."""

    def __init__(
        self,
        rules: Callable[[], SaslRules],
        handle: Callable[[Any, Client], None],
        fail: Callable[[Any, Client, ApiError], None],
    ) -> None:
        self._rules = rules
        self._handle = handle
        self._fail = fail

    def handle(self, exchange: GatedExchange, client: Client) -> None:
        """Pass a request on, take it as a step of the authentication, or close the connection."""
        authentication = client.authentication
        if authentication is None:
            authentication = client.authentication = Authentication(self._rules())
        state = authentication.state
        if state is SaslState.AUTHENTICATED and not self._reauthenticates(exchange, authentication):
            if authentication.is_expired:
                exchange.refuse("its SASL session expired, and it did not reauthenticate in time")
            else:
                self._handle(exchange, client)
            return
        frame = exchange.frame
        assert frame is not None
        if len(frame) > authentication.rules.max_token_bytes:
            exchange.refuse(f"it sent {len(frame)} bytes before it was authenticated")
        elif authentication.state is SaslState.EXPECTS_TOKEN and authentication.is_bare:
            self._take_bare_token(exchange, client, authentication, bytes(frame))
        else:
            self._take_step(exchange, client, authentication, _api_key(frame)[0] if len(frame) > 1 else -1)

    def _reauthenticates(self, exchange: GatedExchange, authentication: Authentication) -> bool:
        frame = exchange.frame
        assert frame is not None
        if len(frame) < 2 or _api_key(frame)[0] != _HANDSHAKE or not authentication.may_reauthenticate:
            return False
        authentication.begin_reauthentication()
        return True

    def _take_step(self, exchange: GatedExchange, client: Client, authentication: Authentication, key: int) -> None:
        if key not in _ALLOWED[authentication.state]:
            self._refuse(exchange, client, authentication, key)
            return
        version = _version_in(exchange.frame)
        self._handle(exchange, client)
        if key == ApiKey.API_VERSIONS and _is_served(version):
            # After a version that is not served, the client may ask once more.
            authentication.state = SaslState.EXPECTS_HANDSHAKE
        if authentication.state is SaslState.FAILED:
            exchange.hang_up(authentication.rules.failure_delay_ms, "its SASL authentication failed")

    def _refuse(self, exchange: GatedExchange, client: Client, authentication: Authentication, key: int) -> None:
        api = BY_KEY.get(key)
        why = f"it sent {api.name if api else f'a request with API key {key}'} before it was authenticated"
        if authentication.state is not SaslState.EXPECTS_TOKEN:
            exchange.refuse(why)
            return
        authentication.state = SaslState.FAILED
        self._fail(exchange, client, IllegalSaslState(f"Unexpected request of API key {key} after SASL handshake"))
        exchange.hang_up(authentication.rules.failure_delay_ms, why)

    def _take_bare_token(
        self, exchange: GatedExchange, client: Client, authentication: Authentication, token: bytes
    ) -> None:
        try:
            answer, _ = authentication.respond(client, token)
        except SaslAuthenticationFailed as error:
            exchange.refuse(f"its SASL authentication failed: {error}")
            return
        exchange.reply([_length(len(answer)) + answer])


def _version_in(frame: memoryview | None) -> int:
    return int(_api_key(frame, 2)[0]) if frame is not None and len(frame) > 3 else -1


def _is_served(version: int) -> bool:
    api = BY_KEY[ApiKey.API_VERSIONS]
    return api.oldest <= version <= api.latest_stable
