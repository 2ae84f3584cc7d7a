"""Calls: a request with its client, its node and the way to answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ottla.broker.authorization.actions import Answers
from ottla.protocol.wire.types import Chunk
from ottla.security.principal_mapping import ANONYMOUS

if TYPE_CHECKING:
    from ottla.broker.requests.authentication import Authentication
    from ottla.broker.requests.dispatch import Route

N = TypeVar("N")


class Exchange(Protocol):
    """One request as the network passes it on: bytes, and exactly one outcome."""

    frame: memoryview | None
    note: object

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None: ...

    def skip(self, *, mute_ms: int = 0) -> None: ...

    def refuse(self, why: str) -> None: ...

    def abort(self, why: str) -> None: ...

    def keep(self) -> None: ...


class Responder(Protocol):
    """Turns the response of a handler into the outcome of its request."""

    def finish(self, call: Call[Any], response: Any, error: Exception | None = None, /) -> None:
        """Encode a response and send it."""
        ...

    def finish_failed(self, call: Call[Any], error: Exception, /) -> None:
        """Answer with an error."""
        ...


class Client:
    """The client of a connection, kept as long as the connection lasts."""

    __slots__ = (
        "address",
        "authentication",
        "connection_id",
        "has_token",
        "is_forwarded",
        "listener",
        "port",
        "principal",
        "security_protocol",
        "software_name",
        "software_version",
    )

    def __init__(self, address: str, listener: str, port: int | None = None) -> None:
        self.address = address
        self.port = port
        self.listener = listener
        self.principal = ANONYMOUS
        self.has_token = False
        """Whether the client authenticated with a delegation token."""
        self.authentication: Authentication | None = None
        """The SASL authentication; None on a listener without SASL."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.security_protocol = "PLAINTEXT"
        self.connection_id = ""
        """Both addresses and a number, in Kafka's format."""
        self.is_forwarded = False
        """Whether a broker forwarded the request: the connection is then the broker's, the rest is the client's."""

    def make_forwarded_client(self) -> Client:
        """Return a client whose request this client, a broker, forwarded over its own connection."""
        client = Client(self.address, self.listener)
        client.software_name, client.software_version = self.software_name, self.software_version
        client.security_protocol, client.connection_id = self.security_protocol, self.connection_id
        client.is_forwarded = True
        return client


class Nothing:
    """The type of NOTHING: the request is not answered."""


NOTHING: Final = Nothing()


class CloseConnection(Exception):
    """Raised by a handler to close the connection instead of answering."""


class Call(Generic[N]):
    """One request being handled. `node` holds the services of the broker or controller that handles it."""

    __slots__ = (
        "_responder",
        "amend",
        "answers",
        "api_key",
        "client",
        "client_id",
        "correlation_id",
        "exchange",
        "node",
        "request",
        "route",
        "version",
    )

    request: Any
    """The decoded request; None if its version is unknown."""

    def __init__(
        self,
        node: N,
        route: Route,
        version: int,
        correlation_id: int,
        client_id: str | None,
        client: Client,
        exchange: Exchange,
        responder: Responder,
    ) -> None:
        self.node = node
        self.route = route
        self.api_key = route.api.key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client = client
        self.amend: Callable[[Any], Any] | None = None
        """Set by a guard, to add errors to the response for what the client may not touch."""
        self.answers: Answers
        """What a slow authorizer has decided about this request; unset before the authorizer is asked."""
        self.exchange = exchange
        self._responder = responder

    def answer(self, response: Any) -> None:
        """Answer a call whose handler returned LATER."""
        self._responder.finish(self, response)

    def fail(self, error: Exception) -> None:
        """Answer a call whose handler returned LATER with an error."""
        self._responder.finish_failed(self, error)

    def learn(self, answers: Answers) -> None:
        """Add what the authorizer decided."""
        self.answers = {**getattr(self, "answers", {}), **answers}

    def keep_bytes(self) -> None:
        """Keep the request's records valid after the handler returns."""
        self.exchange.keep()

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, such as `Fetch`."""
        return self.route.api.name


class Later:
    """The type of LATER: the handler will call `answer`."""


LATER: Final = Later()
