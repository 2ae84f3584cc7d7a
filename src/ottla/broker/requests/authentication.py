"""Clients of listeners with SASL: what they may ask for before it is known who they are, and when that must be proved
again.

Before it, there is ApiVersions once, then SaslHandshake with a mechanism, then tokens: in SaslAuthenticate requests, or
bare after a handshake of version 0. Everything else ends the connection, and so does a proof that is none, a moment
after the client was told. A session that lasts for a limited time (KIP-368) begins anew with another handshake; whoever
goes on without one when it is over is thrown out.
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
_LEAST_SESSION_NS: Final = 1_000_000_000
"""So long after one renewal of a session the next may begin, as with Kafka."""
_key = struct.Struct(">h").unpack_from
_length = struct.Struct(">i").pack


class State(Enum):
    """How far a connection has come."""

    NEW = auto()
    VERSIONS_TOLD = auto()
    AUTHENTICATING = auto()
    KNOWN = auto()
    FAILED = auto()


@dataclass(frozen=True)
class SaslRules:
    """What holds on one listener."""

    exchanges: Mapping[str, Callable[[], ServerExchange]]
    """Mechanism → begins an exchange."""
    session_ms: Mapping[str, int]
    """Mechanism → after how long a client must prove again who it is; 0 if never."""
    max_token_bytes: int
    failure_delay_ms: int
    now_ms: Callable[[], int]
    now_ns: Callable[[], int]

    @property
    def mechanisms(self) -> list[str]:
        return list(self.exchanges)


class Authentication:
    """One connection's."""

    __slots__ = (
        "_ends_ns",
        "_exchange",
        "_first",
        "_problem",
        "_renewed_ns",
        "is_bare",
        "mechanism",
        "rules",
        "state",
    )

    def __init__(self, rules: SaslRules) -> None:
        self.rules = rules
        self.state = State.NEW
        self.mechanism = ""
        self.is_bare = False
        """Whether tokens come without headers."""
        self._exchange: ServerExchange | None = None
        self._first: str | None = None
        """Who the client was when it proved it for the first time."""
        self._problem: str | None = None
        """Why the proof that comes next cannot count."""
        self._renewed_ns: int | None = None
        self._ends_ns: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the client's session is over."""
        return self._ends_ns is not None and self.rules.now_ns() >= self._ends_ns

    @property
    def may_begin_anew(self) -> bool:
        """Whether a proof of a session that is limited may follow now; not within a second of the last such."""
        if self._ends_ns is None:
            return False
        return self._renewed_ns is None or self.rules.now_ns() - self._renewed_ns >= _LEAST_SESSION_NS

    def begin_anew(self) -> None:
        """Take a handshake next, from a client that is known."""
        self._renewed_ns = self.rules.now_ns()
        self.state = State.VERSIONS_TOLD

    def begin(self, mechanism: str, *, bare: bool) -> bool:
        """Take up an exchange; False if there is no such mechanism here."""
        begin = self.rules.exchanges.get(mechanism)
        if begin is None:
            self.state = State.FAILED
            return False
        if self._first is not None and mechanism != self.mechanism:
            self._problem = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism"
                f" '{self.mechanism}'"
            )
        else:
            self.mechanism = mechanism
        self._exchange = begin()
        self.is_bare = bare
        self.state = State.AUTHENTICATING
        return True

    def take(self, client: Client, token: bytes) -> tuple[bytes, int]:
        """The answer to a token, and for how many milliseconds the client is known by it; raises ApiError."""
        if self.state is not State.AUTHENTICATING or self._exchange is None:
            raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
        try:
            if self._problem is not None:
                raise SaslAuthenticationFailed(self._problem)
            answer = self._exchange.respond(token)
            proven = self._exchange.authenticated
            if proven is None:
                return answer, 0
            self._check_name(proven)
        except SaslAuthenticationFailed:
            self.state = State.FAILED
            raise
        return answer, self._know(client, proven)

    def _check_name(self, proven: AuthenticatedUser) -> None:
        if self._first not in (None, proven.user):
            raise SaslAuthenticationFailed(
                f"Cannot change principals during re-authentication from User.{self._first}: User.{proven.user}"
            )

    def _know(self, client: Client, proven: AuthenticatedUser) -> int:
        self._first = proven.user
        self._exchange = None
        self.state = State.KNOWN
        client.principal = f"User:{proven.user}"
        client.has_token = proven.has_token
        session_ms = self.rules.session_ms[self.mechanism]
        limits_ms = [session_ms] if session_ms > 0 else []
        if proven.until_ms is not None:
            limits_ms.append(max(proven.until_ms - self.rules.now_ms(), 0))
        if not limits_ms:
            self._ends_ns = None
            return 0
        self._ends_ns = self.rules.now_ns() + min(limits_ms) * 1_000_000
        return min(limits_ms)


_ALLOWED: Final[Mapping[State, tuple[int, ...]]] = {
    State.NEW: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.VERSIONS_TOLD: (ApiKey.SASL_HANDSHAKE,),
    State.AUTHENTICATING: (ApiKey.SASL_AUTHENTICATE,),
    State.KNOWN: (),
    State.FAILED: (),
}


class GatedExchange(Exchange, Protocol):
    """A request of a connection that can be ended."""

    def hang_up(self, after_ms: int, why: str) -> None: ...


class SaslGate:
    """Stands in front of a listener's APIs."""

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
        """Let a request pass, or not."""
        known = client.authentication
        if known is None:
            known = client.authentication = Authentication(self._rules())
        if known.state is State.KNOWN and not self._begins_anew(exchange, known):
            if known.has_ended:
                exchange.refuse("its session is over, and it has not proved again who it is")
            else:
                self._handle(exchange, client)
            return
        frame = exchange.frame
        assert frame is not None
        if len(frame) > known.rules.max_token_bytes:
            exchange.refuse(f"it sent {len(frame)} bytes before it was known who it is")
        elif known.state is State.AUTHENTICATING and known.is_bare:
            self._take_bare(exchange, client, known, bytes(frame))
        else:
            self._step(exchange, client, known, _key(frame)[0] if len(frame) > 1 else -1)

    def _begins_anew(self, exchange: GatedExchange, known: Authentication) -> bool:
        frame = exchange.frame
        assert frame is not None
        if len(frame) < 2 or _key(frame)[0] != _HANDSHAKE or not known.may_begin_anew:
            return False
        known.begin_anew()
        return True

    def _step(self, exchange: GatedExchange, client: Client, known: Authentication, key: int) -> None:
        if key not in _ALLOWED[known.state]:
            self._refuse(exchange, client, known, key)
            return
        version = _version(exchange.frame)
        self._handle(exchange, client)
        if key == ApiKey.API_VERSIONS and _is_served(version):
            known.state = State.VERSIONS_TOLD  # who came with another version comes again
        if known.state is State.FAILED:
            exchange.hang_up(known.rules.failure_delay_ms, "it did not prove who it is")

    def _refuse(self, exchange: GatedExchange, client: Client, known: Authentication, key: int) -> None:
        api = BY_KEY.get(key)
        why = f"it asked for {api.name if api else key} before it was known who it is"
        if known.state is not State.AUTHENTICATING:
            exchange.refuse(why)
            return
        known.state = State.FAILED
        self._fail(exchange, client, IllegalSaslState(f"Unexpected request of API key {key} after SASL handshake"))
        exchange.hang_up(known.rules.failure_delay_ms, why)

    def _take_bare(self, exchange: GatedExchange, client: Client, known: Authentication, token: bytes) -> None:
        try:
            answer, _ = known.take(client, token)
        except SaslAuthenticationFailed as error:
            exchange.refuse(f"it did not prove who it is: {error}")
            return
        exchange.reply([_length(len(answer)) + answer])


def _version(frame: memoryview | None) -> int:
    return int(_key(frame, 2)[0]) if frame is not None and len(frame) > 3 else -1


def _is_served(version: int) -> bool:
    api = BY_KEY[ApiKey.API_VERSIONS]
    return api.oldest <= version <= api.latest_stable
