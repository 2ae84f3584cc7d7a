"""Dispatch: decode a request, call its handler, encode the answer, and handle failures on the way.

A node has a table of routes for each kind of listener. A route is built when it is first used. A handler is a function
that returns a response, LATER (it will call `call.answer`) or NOTHING; or a coroutine, for work that waits for other
nodes. An ApiError becomes the answer's error code here, once. Any other exception is a bug: it is logged with its
request and answered with UNKNOWN_SERVER_ERROR.

A request that this node does not serve, or that cannot be decoded, closes the connection, as in Kafka. The exception is
ApiVersions: a request in an unknown version is answered in version 0.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.authorization.actions import Answers, Unanswered
from ottla.broker.network.request import SecondOutcome
from ottla.broker.requests.call import LATER, NOTHING, Call, Client, CloseConnection, Exchange
from ottla.broker.requests.endpoint import Endpoint, Guard, endpoint_of
from ottla.broker.requests.envelope import Enclosed
from ottla.protocol.errors import ApiError, NotController, UnknownServerError, UnsupportedVersion
from ottla.protocol.messages.apis import BY_KEY, ApiKey, Listeners
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.rpc.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.wire.codec import decode_from, is_flexible, reader_of, writer_of
from ottla.protocol.wire.declare import Reader, Writer
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.types import Chunk
from ottla.replication.runtime import Spawn

logger = logging.getLogger(__name__)

N = TypeVar("N")

_head = struct.Struct(">hhih").unpack_from
_HEAD_BYTES = 10
_length_and_correlation = struct.Struct(">ii").pack
_with_tags = struct.Struct(">iiB").pack
_SMALL_BYTES = 8192
"""A smaller answer is copied behind its header, if it is one chunk: sending one chunk takes fewer steps than two."""


class Throttling(Protocol):
    """Enforces the quotas of clients."""

    def before(self, call: Call[Any], request: Any) -> None:
        """Prepare a request that is about to be handled."""
        ...

    def after(self, call: Call[Any], response: Any, error: Exception | None = None) -> int:
        """Charge a request that was handled or failed; return how long its connection is muted, in milliseconds."""
        ...


class Route:
    """One version of one API on one node: its handler and its codecs."""

    __slots__ = (
        "api",
        "endpoint",
        "guard",
        "handler",
        "has_flexible_header",
        "has_flexible_response",
        "meter",
        "observe_response",
        "pick_meter",
        "read",
        "version",
        "write",
    )

    def __init__(self, endpoint: Endpoint, version: int) -> None:
        self.endpoint = endpoint
        self.api = api = endpoint.api
        self.version = version
        self.handler = endpoint.handler
        self.read: Reader = reader_of(api.request, version)
        self.write: Writer = writer_of(api.response, version)
        self.has_flexible_header = is_flexible(api.request, version)
        # A client must be able to read the answer before it knows what the node speaks.
        self.has_flexible_response = is_flexible(api.response, version) and api.key != ApiKey.API_VERSIONS
        self.guard: Guard | None = None
        """Authorizes a request; None if every client may send it."""
        self.meter: Any = None
        """Counts the requests, unless `pick_meter` chooses another meter for one of them."""
        self.pick_meter: Callable[[Any, Any], Any] | None = None
        self.observe_response: Callable[[Any, Any], None] | None = None
        """Called with the meter of a request and its response, before the response is encoded."""


class Dispatch(Generic[N]):
    """The APIs of one kind of listener on one node."""

    def __init__(
        self,
        node: N,
        endpoints: Mapping[ApiKey, Endpoint],
        listeners: Listeners,
        *,
        spawn: Spawn,
        after: Callable[[], None],
        unstable: bool = False,
        has_guards: bool = False,
        watch: Callable[[Route], None] | None = None,
    ) -> None:
        self.node = node
        self.endpoints = endpoints
        self.listeners = listeners
        self.unstable = unstable
        self.throttling: Throttling | None = None
        """Enforces quotas; None while no client has one."""
        self._has_guards = has_guards
        """Whether guards run before the handlers: only a node with an authorizer needs them."""
        self._spawn = spawn
        self._after = after
        """Called when a handler has returned, to complete delayed operations before the next request is handled."""
        self._watch = watch
        """Called with each new route, to have its requests counted."""
        self._routes: dict[int, Route] = {}
        self._refused: Route | None = None
        self._client_ids: dict[bytes, str] = {}

    def serves(self, key: int, version: int) -> bool:
        """Return whether this node serves a version of an API."""
        api = BY_KEY.get(key)
        if api is None or key not in self.endpoints or not api.listeners & self.listeners:
            return False
        return api.oldest <= version <= (api.latest if self.unstable else api.latest_stable)

    def handle(self, exchange: Exchange, client: Client, answers: Answers | None = None) -> None:
        """Handle a request. It has exactly one outcome, now or later.

        `answers` holds what a slow authorizer has decided about this request so far.
        """
        frame = exchange.frame
        assert frame is not None
        try:
            call, request = self._decode(frame, exchange, client)
        except ProtocolError as error:
            logger.warning("%s sent a malformed request on listener %s: %s", client.address, client.listener, error)
            exchange.refuse(f"it sent a malformed request: {error}")
            return
        except CloseConnection as reason:
            exchange.refuse(str(reason))
            return
        if answers is not None:
            call.answers = answers
        route = call.route
        try:
            exchange.note = route.meter if route.pick_meter is None else route.pick_meter(call, request)
            if self.throttling is not None:
                self.throttling.before(call, request)
            if route.guard is not None:
                route.guard(call, request)
            result = route.handler(call, request)
        except Exception as error:  # noqa: BLE001 (any failure is answered, and the node goes on)
            if isinstance(error, Unanswered):
                exchange.keep()
                self._spawn(self._wait_for_authorizer(call, error))
            else:
                self.finish_failed(call, error)
        else:
            if result is LATER:
                pass
            elif type(result) is CoroutineType:
                self._spawn(self._await_response(call, result))
            else:
                self.finish(call, result)
        self._after()

    def fail(self, exchange: Exchange, client: Client, error: ApiError) -> None:
        """Answer a request with an error instead of handling it."""
        frame = exchange.frame
        assert frame is not None
        try:
            call, _ = self._decode(frame, exchange, client)
        except (ProtocolError, CloseConnection) as reason:
            exchange.refuse(str(reason))
            return
        exchange.note = call.route.meter
        self.finish_failed(call, error)

    def _decode(self, frame: memoryview, exchange: Exchange, client: Client) -> tuple[Call[N], Any]:
        """Decode the header and the body of a request."""
        if len(frame) < _HEAD_BYTES:
            raise ProtocolError(f"{len(frame)} bytes are shorter than a request header")
        key, version, correlation_id, size = _head(frame)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._route(key, version)
        pos = _HEAD_BYTES
        client_id = None
        if size >= 0:
            raw = bytes(frame[pos : pos + size])
            if len(raw) < size:
                raise ProtocolError(f"the client id has {size} bytes, but only {len(raw)} are left", position=pos)
            pos += size
            client_id = self._client_ids.get(raw)
            if client_id is None:
                client_id = self._remember_client_id(raw)
        if route.has_flexible_header:
            if pos < len(frame) and not frame[pos]:
                pos += 1
            else:
                _, pos = decode_from(RequestHeader, 2, frame)
        call = Call(self.node, route, version, correlation_id, client_id, client, exchange, self)
        if route.version != version:
            call.request = None
            return call, None  # the body is of an unknown version
        # Bytes behind the body are ignored, as in Kafka: librdkafka sends some with Metadata v13.
        request, _ = route.read(frame, pos)
        call.request = request
        return call, request

    def _route(self, key: int, version: int) -> Route:
        if self.serves(key, version):
            route = self._routes[key << 16 | version] = self._new_route(self.endpoints[ApiKey(key)], version)
            return route
        if key == ApiKey.API_VERSIONS and ApiKey.API_VERSIONS in self.endpoints:
            if self._refused is None:
                self._refused = self._new_route(_REFUSED_API_VERSIONS, 0)
            return self._refused
        api = BY_KEY.get(key)
        name = f"{api.name} v{version}" if api else f"API {key} v{version}"
        logger.warning("a client sent %s, which this listener does not serve", name)
        raise CloseConnection(f"this listener does not serve {name}")

    def _new_route(self, endpoint: Endpoint, version: int) -> Route:
        route = Route(endpoint, version)
        if self._has_guards:
            route.guard = endpoint.guard
        if self._watch is not None:
            self._watch(route)
        return route

    def _remember_client_id(self, raw: bytes) -> str:
        client_id = raw.decode(errors="replace")  # a malformed client id does not close the connection
        if len(self._client_ids) >= 10_000:
            self._client_ids.clear()
        self._client_ids[raw] = client_id
        return client_id

    async def _wait_for_authorizer(self, call: Call[N], question: Unanswered) -> None:
        """Wait for the authorizer, and handle the request again from its bytes, because a guard may have changed it."""
        try:
            call.learn(await question.answers())
        except asyncio.CancelledError:
            call.exchange.abort(f"{call.route.api.name} was cancelled before the authorizer had decided")
            raise
        except Exception as error:  # noqa: BLE001 (as above)
            self.finish_failed(call, error)
            self._after()
        else:
            self.handle(call.exchange, call.client, call.answers)

    async def _await_response(self, call: Call[N], result: Awaitable[Any]) -> None:
        try:
            response = await result
        except asyncio.CancelledError:
            call.exchange.abort(f"{call.route.api.name} was cancelled before it had an answer")
            raise
        except Exception as error:  # noqa: BLE001 (as above)
            self.finish_failed(call, error)
        else:
            if response is not LATER:
                self.finish(call, response)
        self._after()

    def finish_failed(self, call: Call[N], error: Exception) -> None:
        """Answer with an error, or close the connection if no answer is expected or possible."""
        if isinstance(error, NotController) and isinstance(call.exchange, Enclosed):
            call.exchange.fail(error)  # for the broker that forwarded the request, not for its client
            return
        if not isinstance(error, ApiError | CloseConnection):
            logger.error("%s v%d failed: %r", call.route.api.name, call.version, call.request, exc_info=error)
            error = UnknownServerError()
        try:
            if isinstance(error, CloseConnection):
                call.exchange.refuse(str(error))
                return
            response = call.route.endpoint.failed(call.request, call.version, error)
            if response is None:
                call.exchange.refuse(f"{call.route.api.name} failed, and no answer is expected: {error}")
                return
        except Exception as defect:  # noqa: BLE001 (as above)
            self._answer_defect(call, defect)
        else:
            self.finish(call, response, error)

    def finish(self, call: Call[N], response: Any, error: Exception | None = None) -> None:
        """Encode an answer and send it. `error` is the failure of the request as a whole, if it failed.

        If that fails, the request still has exactly one outcome.
        """
        try:
            if call.amend is not None:
                try:
                    response = call.amend(response)
                except Unanswered as question:
                    question.then(call, partial(self.finish, call, response))
                    return
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            if self.throttling is not None:
                throttle_ms = self.throttling.after(call, response, error)
            if response is NOTHING:
                call.exchange.skip(mute_ms=throttle_ms)
                return
            if isinstance(response, CloseConnection):
                call.exchange.refuse(str(response))
                return
            route = call.route
            if route.observe_response is not None:
                route.observe_response(call.exchange.note, response)
            chunks: list[Chunk] = [b""]
            route.write(response, chunks.append)
            size = sum(map(len, chunks))
            if route.has_flexible_response:
                head = _with_tags(size + 5, call.correlation_id, 0)
            else:
                head = _length_and_correlation(size + 4, call.correlation_id)
            if size < _SMALL_BYTES and len(chunks) == 2 and type(chunks[1]) is bytes:
                chunks = [head + chunks[1]]  # almost every answer without records
            else:
                chunks[0] = head
            call.exchange.reply(chunks, mute_ms=throttle_ms)
        except Exception as defect:  # noqa: BLE001 (as above)
            self._answer_defect(call, defect)

    def _answer_defect(self, call: Call[N], defect: Exception) -> None:
        """Answer UNKNOWN_SERVER_ERROR or close the connection, because a defect kept the answer from being sent."""
        route, exchange = call.route, call.exchange
        logger.error(
            "%s v%d has no answer that can be sent: %r", route.api.name, call.version, call.request, exc_info=defect
        )
        _count_defect(exchange)
        try:
            response = route.endpoint.failed(call.request, call.version, UnknownServerError())
            if response is not None and not isinstance(defect, SecondOutcome):
                self._send_plainly(call, response)
                return
        except Exception as error:  # noqa: BLE001 (closing the connection is all that is left)
            logger.error("%s v%d cannot be answered with an error either: %s", route.api.name, call.version, error)
        exchange.abort(f"a bug kept {route.api.name} from being answered; the node's log has the details")

    def _send_plainly(self, call: Call[N], response: Any) -> None:
        """Send an answer without quotas and metrics, because one of these may have failed."""
        chunks: list[Chunk] = []
        call.route.write(response, chunks.append)
        size = sum(map(len, chunks))
        if call.route.has_flexible_response:
            head = _with_tags(size + 5, call.correlation_id, 0)
        else:
            head = _length_and_correlation(size + 4, call.correlation_id)
        call.exchange.reply([head, *chunks])


def _count_defect(exchange: Exchange) -> None:
    note: Any = exchange.note
    try:
        if note is not None:
            note.failed({UnknownServerError.code})
    except Exception:
        logger.exception("the error of a request could not be counted")


def _refuse_version(call: Call[Any], request: None) -> Any:
    raise UnsupportedVersion(f"ApiVersions v{call.version} is not served here")


def _served_api_versions(request: None, version: int, error: ApiError) -> ApiVersionsResponse:
    """Tell a client that sent an unknown version of ApiVersions which versions it may send."""
    api = BY_KEY[ApiKey.API_VERSIONS]
    served = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=api.oldest, max_version=api.latest_stable)
    return ApiVersionsResponse(error_code=error.code, api_keys=[served])


_REFUSED_API_VERSIONS = endpoint_of(ApiKey.API_VERSIONS, _refuse_version, failed=_served_api_versions)
