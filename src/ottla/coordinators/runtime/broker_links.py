"""Persistent connections to other brokers, and batching of small requests: one request at a time to each broker.

Items that arrive while a request is in progress go into the next one, so that many items need few requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from ottla.client.connection_pool import ConnectionPool
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Endpoint
from ottla.protocol.errors import ApiError, NetworkFailed
from ottla.replication.runtime import Spawn
from ottla.security.settings import SecurityProvider, plaintext

_CONNECT_S: Final = 5.0

ItemT = TypeVar("ItemT")


class BrokerLinks:
    """Connections to other brokers, opened on first use."""

    def __init__(
        self,
        client_id: str,
        image: Callable[[], Image],
        listener: str,
        *,
        timeout_s: float,
        security: SecurityProvider = plaintext,
    ) -> None:
        self._image = image
        self._listener = listener
        self._timeout_s = timeout_s
        self._pool = ConnectionPool(client_id, security)
        self._endpoints: dict[int, Endpoint] = {}
        """Broker → the endpoint of its connection."""

    async def send(self, broker_id: int, request: Any) -> Any:
        """Return a broker's response; raise NetworkFailed, RequestTimedOut or UnsupportedVersion."""
        endpoint = self._image().endpoint(broker_id, self._listener)
        if endpoint is None:
            raise NetworkFailed(f"broker {broker_id} has no endpoint on listener {self._listener}")
        previous = self._endpoints.get(broker_id, endpoint)
        if previous != endpoint:
            self._pool.drop(previous.host, previous.port)
        self._endpoints[broker_id] = endpoint
        connection = await self._pool.connection(
            endpoint.host, endpoint.port, timeout_s=min(self._timeout_s, _CONNECT_S)
        )
        return await connection.send(request, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class RequestBatcher(Generic[ItemT]):
    """Items for other brokers, sent in batches.

    `build_request` returns a request, the items in it and the items left for the next one. `on_answer` gets the items
    of a request with the response or an ApiError.
    """

    def __init__(
        self,
        links: BrokerLinks,
        spawn: Spawn,
        *,
        build_request: Callable[[Sequence[ItemT]], tuple[Any, list[ItemT], list[ItemT]]],
        on_answer: Callable[[Sequence[ItemT], Any], None],
    ) -> None:
        self._links = links
        self._spawn = spawn
        self._build_request = build_request
        self._on_answer = on_answer
        self._waiting: dict[int, list[ItemT]] = {}
        self._busy: set[int] = set()

    def enqueue(self, broker_id: int, item: ItemT) -> None:
        """Send an item with the next request to a broker."""
        self._waiting.setdefault(broker_id, []).append(item)
        if broker_id not in self._busy:
            self._busy.add(broker_id)
            self._spawn(self._run(broker_id))

    async def _run(self, broker_id: int) -> None:
        try:
            while items := self._waiting.pop(broker_id, None):
                request, sent, deferred = self._build_request(items)
                if deferred:
                    self._waiting[broker_id] = deferred
                try:
                    answer = await self._links.send(broker_id, request)
                except ApiError as error:
                    answer = error
                self._on_answer(sent, answer)
        finally:
            self._busy.discard(broker_id)
