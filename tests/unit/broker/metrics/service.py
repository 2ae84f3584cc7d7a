"""A dispatch on a real socket, with the test's handlers and a node's meters."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ottla.broker.metrics.family import render
from ottla.broker.metrics.request_metrics import RequestMeters, on_sent
from ottla.broker.network.listener import ConnectionCounts, Listener
from ottla.broker.network.request import Request
from ottla.broker.network.request_channel import RequestChannel
from ottla.broker.requests.call import Call, Client
from ottla.broker.requests.dispatch import Dispatch, Route
from ottla.broker.requests.endpoint import Endpoint, endpoint_of
from ottla.config.listeners import ConnectionLimits
from ottla.protocol.messages.apis import BY_KEY, ApiKey, Listeners
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.wire.codec import decode_from, encode, is_flexible
from tests.support.exposition import Exposition

Handler = Callable[[Call[None], Any], Any]


class Service:
    """Serves one connection and reads the metrics."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self.meters = RequestMeters()
        self.request_channel = RequestChannel(self._handle)
        loop = asyncio.get_running_loop()
        self.tasks: list[asyncio.Task[None]] = []
        self.routes: list[Route] = []
        endpoints: dict[ApiKey, Endpoint] = {key: endpoint_of(key, handler) for key, handler in handlers.items()}
        self.dispatch = Dispatch(
            None,
            endpoints,
            Listeners.BROKER,
            spawn=lambda work: self.tasks.append(loop.create_task(self.request_channel.follow(work))),
            after=lambda: None,
            watch=self._watch,
        )
        self.listener = Listener(
            loop, "TEST", self.request_channel, limits=ConnectionLimits(), counts=ConnectionCounts(), on_sent=on_sent
        )

    async def connect(self) -> None:
        port = self.listener.bind("127.0.0.1", 0)
        self.listener.start()
        self.address = ("127.0.0.1", port)
        self.reader, self.writer = await asyncio.open_connection(*self.address)

    async def ask(self, request: Any, key: ApiKey, version: int, *, correlation_id: int = 7) -> Any:
        """Send a request and read its answer."""
        self.send(request, key, version, correlation_id=correlation_id)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = memoryview(await self.reader.readexactly(size))
        api = BY_KEY[key]
        start = 5 if is_flexible(api.response, version) and key != ApiKey.API_VERSIONS else 4
        answer, _ = decode_from(api.response, version, frame[start:])
        return answer

    def send(self, request: Any, key: ApiKey, version: int, *, correlation_id: int = 7) -> None:
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="tester"
        )
        flexible = is_flexible(BY_KEY[key].request, version)
        body = encode(header, 2 if flexible else 1) + encode(request, version)
        self.writer.write(struct.pack(">i", len(body)) + body)

    def metrics(self) -> Exposition:
        return Exposition(render(self.meters.families()))

    def _watch(self, route: Route) -> None:
        self.routes.append(route)
        self.meters.watch(route)

    def _handle(self, request: Request) -> None:
        connection = request.connection
        if not isinstance(connection.session, Client):
            connection.session = Client(connection.peer, "TEST")
        assert isinstance(connection.session, Client)
        self.dispatch.handle(request, connection.session)


@asynccontextmanager
async def serving(handlers: Mapping[ApiKey, Handler]) -> AsyncIterator[Service]:
    service = Service(handlers)
    await service.connect()
    try:
        yield service
    finally:
        service.writer.close()
        service.listener.close()
        await asyncio.sleep(0)
