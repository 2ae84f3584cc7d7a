"""The replication of one broker: fetchers with their connections, ISR changes, throttles.

This module has the connections and tasks. The `replication` room decides what to fetch and what to do with the answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ottla.client.connection import Connection
from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.changes import Changes
from ottla.protocol.errors import ApiError, BrokerNotAvailable, NetworkFailed
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.replication.directory_assignments import DirectoryAssignments
from ottla.replication.fetch_requests import FetchLimits
from ottla.replication.fetcher import Fetcher, Lane
from ottla.replication.fetchers import FetcherId, Fetchers
from ottla.replication.in_sync import InSyncRules
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.truncation_queue import TruncationQueue
from ottla.security.settings import SecurityProvider, plaintext

logger = logging.getLogger(__name__)

_TOPIC_IDS = 13
"""The first version of Fetch with topic ids, which all brokers of KRaft clusters support."""


class Replication:
    """Everything of a broker's replication except the partitions."""

    def __init__(
        self,
        settings: NodeSettings,
        partitions: Partitions,
        runtime: Runtime,
        *,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        on_lost: Callable[[int], None],
        security: SecurityProvider = plaintext,
    ) -> None:
        self._settings = settings
        self._security = security
        self._partitions = partitions
        self._runtime = runtime
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self._on_lost = on_lost
        self._shrinking: asyncio.TimerHandle | None = None
        number = settings.number
        throttle = partial(
            ReplicationThrottle,
            broker_id=settings.node_id,
            now_ms=runtime.now_ms,
            windows=number("replication.quota.window.num"),
            window_ms=number("replication.quota.window.size.seconds") * 1000,
        )
        self.leader_throttle = throttle("leader")
        self.follower_throttle = throttle("follower")
        self._limits = _fetch_limits(settings)
        self._truncation_queue = TruncationQueue(partitions.logs, runtime.loop.call_soon, runtime.now_ms)
        self.isr_changes = IsrChanges(
            settings.node_id,
            self._send_to_controller,
            broker_epoch=broker_epoch,
            call_later=runtime.loop.call_later,
            completions=runtime.completions,
        )
        self.directory_assignments = DirectoryAssignments(
            settings.node_id,
            partitions.logs,
            self._send_to_controller,
            broker_epoch=broker_epoch,
            call_later=runtime.loop.call_later,
        )
        self.fetchers = Fetchers(self._open, per_broker=number("num.replica.fetchers"))
        rules: InSyncRules = partitions.rules
        rules.max_lag_ms = number("replica.lag.time.max.ms")
        rules.propose = self.isr_changes.submit
        partitions.fetching = self.fetchers
        partitions.on_placed = self.directory_assignments.check
        partitions.call_later = runtime.loop.call_later

    def start(self) -> None:
        """Begin to remove lagging followers from ISRs, at half of `replica.lag.time.max.ms`."""
        self._shrinking = self._runtime.loop.call_later(self._partitions.rules.max_lag_ms / 2000, self._shrink)

    def apply(self, changes: Changes) -> None:
        """Apply changed throttles, before the partitions apply the same changes."""
        self.leader_throttle.apply(changes)
        self.follower_throttle.apply(changes)

    def reconfigure(self, old: NodeSettings, new: NodeSettings) -> None:
        """Apply changed broker settings."""
        self.fetchers.resize(new.number("num.replica.fetchers"))

    def stop(self) -> None:
        """Stop fetching, proposing ISR changes and creating partitions."""
        if self._shrinking is not None:
            self._shrinking.cancel()
        self._partitions.stop()
        self.fetchers.close()

    def _shrink(self) -> None:
        self._partitions.shrink(self._runtime.now_ms())
        self.start()

    def _send_to_controller(
        self, request: Any, answered: Callable[[Any], None], failed: Callable[[ApiError], None]
    ) -> None:
        async def ask() -> None:
            try:
                answer = await self._ask_controller(request)
            except ApiError as error:
                failed(error)
            else:
                answered(answer)

        self._runtime.spawn(ask())

    def _open(self, fetcher_id: FetcherId, on_failed: Callable[[Partition], None]) -> RunningFetcher:
        source, number = fetcher_id
        name = f"broker-{self._settings.node_id}-fetcher-{number}"
        running = RunningFetcher(
            self._runtime,
            partial(self._connect, source, name),
            self._timeout_s,
            on_lost=partial(self._on_lost, source),
        )
        running.fetcher = Fetcher(
            self._settings.node_id,
            source,
            self._limits,
            self._partitions.logs,
            self._truncation_queue,
            broker_epoch=self._broker_epoch,
            throttle=self.follower_throttle,
            on_failed=on_failed,
            on_ready=running.wake,
        )
        return running

    @property
    def _timeout_s(self) -> float:
        return self._settings.number("replica.socket.timeout.ms") / 1000

    async def _connect(self, source: int, name: str) -> Connection:
        endpoint = self._partitions.image.endpoint(source, self._settings.inter_broker_listener_name)
        if endpoint is None:
            raise BrokerNotAvailable(f"broker {source} has no listener {self._settings.inter_broker_listener_name}")
        return await Connection.connect(
            endpoint.host, endpoint.port, client_id=name, timeout_s=self._timeout_s, security=self._security()
        )


def _fetch_limits(settings: NodeSettings) -> FetchLimits:
    number = settings.number
    return FetchLimits(
        min_bytes=number("replica.fetch.min.bytes"),
        max_wait_ms=number("replica.fetch.wait.max.ms"),
        partition_max_bytes=number("replica.fetch.max.bytes"),
        response_max_bytes=number("replica.fetch.response.max.bytes"),
        backoff_ms=number("replica.fetch.backoff.ms"),
    )


class RunningFetcher:
    """A fetcher with one connection for each lane."""

    fetcher: Fetcher

    def __init__(
        self,
        runtime: Runtime,
        connect: Callable[[], Awaitable[Connection]],
        timeout_s: float,
        *,
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = runtime.loop
        self._connect = connect
        self._on_lost = on_lost
        self._completions = runtime.completions
        self._timeout_s = timeout_s
        self._now_ms = runtime.now_ms
        self._connections: dict[Lane, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[Lane] = set()
        self._waking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the leader closed a connection with a request in flight. Idle connections may close at any time."""
        return any(
            connection.is_closed_by_peer for lane, connection in self._connections.items() if lane in self._waiting
        )

    def wake(self) -> None:
        """Poll the fetcher when the current step of the event loop is over."""
        if self._waking is None and not self._is_closed:
            self._waking = self._loop.call_soon(self._poll)

    def close(self) -> None:
        """Cancel all requests and close all connections."""
        self._is_closed = True
        for handle in (self._waking, self._timer):
            if handle is not None:
                handle.cancel()
        for task in list(self._tasks):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _poll(self) -> None:
        self._waking = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed:
            return
        now_ms = self._now_ms()
        for lane, request in self.fetcher.poll(now_ms):
            task = self._loop.create_task(self._exchange(lane, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        next_ms = self.fetcher.next_ms(now_ms)
        if next_ms is not None:
            self._timer = self._loop.call_later(max(next_ms - now_ms, 1) / 1000, self._poll)

    async def _exchange(self, lane: Lane, request: Any) -> None:
        try:
            response = await self._ask(lane, request)
        except ApiError as error:
            self._drop(lane)
            if isinstance(error, NetworkFailed):
                self._on_lost()
            self.fetcher.handle_failure(lane, error, self._now_ms())
        else:
            self.fetcher.handle_response(lane, response, self._now_ms())
        self._completions.run()
        self._poll()

    async def _ask(self, lane: Lane, request: Any) -> Any:
        connection = self._connections.get(lane)
        if connection is None or not connection.is_open:
            connection = self._connections[lane] = await self._connect()
        if isinstance(request, FetchRequest) and connection.version_of(ApiKey.FETCH) < _TOPIC_IDS:
            raise BrokerNotAvailable(
                f"{connection.address} does not support Fetch v{_TOPIC_IDS}, the first with topic ids"
            )
        self._waiting.add(lane)
        try:
            return await connection.send(request, timeout_s=self._timeout_s)
        finally:
            self._waiting.discard(lane)

    def _drop(self, lane: Lane) -> None:
        connection = self._connections.pop(lane, None)
        if connection is not None:
            connection.close()
