"""Kept connections to other brokers, and what is sent over them in batches: one request at a time to each broker.

What comes while a request is under way goes into the next one, so that many small things cost few requests.
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

I = TypeVar("I")  # noqa: E741 (an item)


class BrokerLinks:
    """Connections to other brokers, each opened when it is first needed."""

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
        """Return a broker's answer. Raise NetworkFailed, RequestTimedOut or UnsupportedVersion."""
        endpoint = self._image().endpoint(broker_id, self._listener)
        if endpoint is None:
            raise NetworkFailed(f"broker {broker_id} has no address on {self._listener}")
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


class Batched(Generic[I]):
    """Items for other brokers, sent together.

    `request` makes one of those that wait, and may leave some for the next; `answered` gets them with the answer, or
    with what went wrong.
    """

    def __init__(
        self,
        links: BrokerLinks,
        spawn: Spawn,
        *,
        request: Callable[[Sequence[I]], tuple[Any, list[I], list[I]]],
        answered: Callable[[Sequence[I], Any], None],
    ) -> None:
        self._links = links
        self._spawn = spawn
        self._request = request
        self._answered = answered
        self._waiting: dict[int, list[I]] = {}
        self._busy: set[int] = set()

    def post(self, broker_id: int, item: I) -> None:
        """Send an item with the next request."""
        self._waiting.setdefault(broker_id, []).append(item)
        if broker_id not in self._busy:
            self._busy.add(broker_id)
            self._spawn(self._run(broker_id))

    async def _run(self, broker_id: int) -> None:
        try:
            while items := self._waiting.pop(broker_id, None):
                request, taken, left = self._request(items)
                if left:
                    self._waiting[broker_id] = left
                try:
                    answer = await self._links.send(broker_id, request)
                except ApiError as error:
                    answer = error
                self._answered(taken, answer)
        finally:
            self._busy.discard(broker_id)
