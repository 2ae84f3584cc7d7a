"""What a handler gets beside the request itself: who asks, how, and a way to answer later."""

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
    """One request on a connection, as the network hands it over: bytes, and exactly one outcome."""

    frame: memoryview | None
    note: object

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None: ...

    def skip(self, *, mute_ms: int = 0) -> None: ...

    def refuse(self, why: str) -> None: ...

    def abort(self, why: str) -> None: ...

    def keep(self) -> None: ...


class Answering(Protocol):
    """What turns the response of a handler into the outcome of its request."""

    def finish(self, call: Call[Any], response: Any, error: Exception | None = None, /) -> None:
        """Encode a response and send it."""
        ...

    def finish_failed(self, call: Call[Any], error: Exception, /) -> None:
        """Answer with an error."""
        ...


class Client:
    """Who is at the other end of a connection; kept as long as it lasts."""

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
        """Whether it proved who it is with a delegation token."""
        self.authentication: Authentication | None = None
        """How far it is with SASL; None where there is none."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.security_protocol = "PLAINTEXT"
        self.connection_id = ""
        """Both addresses and a number, as Kafka names connections."""
        self.is_forwarded = False
        """Whether a broker handed on the request: then the connection is the broker's, and the rest is the client's."""

    def forwarded(self) -> Client:
        """A client behind this one, which is a broker: of the connection, everything is the same."""
        client = Client(self.address, self.listener)
        client.software_name, client.software_version = self.software_name, self.software_version
        client.security_protocol, client.connection_id = self.security_protocol, self.connection_id
        client.is_forwarded = True
        return client


class Nothing:
    """The outcome of a request that wants no answer."""


NOTHING: Final = Nothing()


class CloseConnection(Exception):
    """A handler's way to end the connection instead of an answer."""


class Call(Generic[N]):
    """One request being handled. `node` is what handlers act on: the broker's or controller's services."""

    __slots__ = (
        "_answering",
        "_exchange",
        "amend",
        "answers",
        "api_key",
        "client",
        "client_id",
        "correlation_id",
        "node",
        "request",
        "route",
        "version",
    )

    request: Any
    """What the client asked for; None where its bytes cannot be read."""

    def __init__(
        self,
        node: N,
        route: Route,
        version: int,
        correlation_id: int,
        client_id: str | None,
        client: Client,
        exchange: Exchange,
        answering: Answering,
    ) -> None:
        self.node = node
        self.route = route
        self.api_key = route.api.key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client = client
        self.amend: Callable[[Any], Any] | None = None
        """What a guard has done to the answer before it is sent: it adds what the client may not touch."""
        self.answers: Answers
        """What an authorizer that takes its time has decided about this request; not there before it was asked."""
        self._exchange = exchange
        self._answering = answering

    def answer(self, response: Any) -> None:
        """Answer a call whose handler returned LATER."""
        self._answering.finish(self, response)

    def fail(self, error: Exception) -> None:
        """Answer a call whose handler returned LATER with an error."""
        self._answering.finish_failed(self, error)

    def learn(self, answers: Answers) -> None:
        """The authorizer has answered."""
        self.answers = {**getattr(self, "answers", {}), **answers}

    def keep_bytes(self) -> None:
        """Keep the request's record bytes beyond the handler's return."""
        self._exchange.keep()

    @property
    def exchange(self) -> Exchange:
        return self._exchange

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, such as `Fetch`."""
        return self.route.api.name


class Later:
    """The outcome of a handler that will call `answer` when it can."""


LATER: Final = Later()
