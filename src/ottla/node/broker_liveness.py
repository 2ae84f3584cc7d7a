"""Detects dead brokers by their connections, long before their sessions expire.

When a process dies, its connections close. The monitor watches the connection of each broker's last heartbeat. When it
closes, the broker gets a short grace period to send another heartbeat. Ottla's brokers reconnect at once; other brokers
reconnect with their next heartbeat and get a longer grace period.

A refused connection means that the process is gone, so the monitor also probes the broker's port, and ends the session
without grace if the probe is refused. Whether an address can be trusted depends on where it comes from:

- A voter is probed at its address in the quorum, which controllers use already.
- Another broker is probed at its inter-broker address, which controllers might not be able to reach. The monitor tries
  that address while the broker is alive, and trusts it after one success.
- An address that was never reached is used only by a new active controller, which has no heartbeats yet. A refusal then
  leaves the longer grace period.

The broker in the controller's own process needs no probe: if another incarnation of it is registered, that process is
gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ottla.broker.network.connection import Connection
from ottla.broker.network.listener import Listener
from ottla.broker.network.request import Request
from ottla.broker.requests.call import Call
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.ottla_settings import DISCONNECT_GRACE_MS
from ottla.metadata.image.values import Broker
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.node.port_probe import is_refused
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.replication.runtime import Runtime

logger = logging.getLogger(__name__)

_OTTLA: Final = "ottla"
_NO_GRACE_MS: Final = -1
"""The session expired a millisecond ago."""
_PROBE_INTERVAL_S: Final = 0.25


class _LastHeartbeat(NamedTuple):
    """Where a broker's last heartbeat came from."""

    epoch: int
    connection: Connection
    grace_ms: int


class BrokerLivenessMonitor:
    """Watches the connections of brokers to this node's controller."""

    def __init__(
        self,
        settings: NodeSettings,
        controller: ActiveController,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        runtime: Runtime,
        *,
        is_own_registration: Callable[[Broker], bool],
    ) -> None:
        """`is_own_registration` returns whether a registered broker with this node's id is the one in this process."""
        self._settings = settings
        self._controller = controller
        self._quorum = quorum
        self._metadata = metadata
        self._is_own_registration = is_own_registration
        self._spawn = runtime.spawn
        self._now_ms = runtime.now_ms
        self._grace_ms = settings.number(DISCONNECT_GRACE_MS)
        self._long_grace_ms = max(self._grace_ms, 2 * settings.number("broker.heartbeat.interval.ms"))
        self._last_heartbeats: dict[int, _LastHeartbeat] = {}
        self._reached_epochs: dict[int, int] = {}
        """Broker → the broker epoch in which its address was reached."""
        self._probing: set[int] = set()

    def watch(self, listeners: Iterable[Listener]) -> None:
        """Subscribe to activations of the controller and to closed connections of its listeners."""
        self._controller.on_active = self.on_activated
        for listener in listeners:
            if listener.name in self._settings.controller_listener_names:
                listener.on_closed = self.on_connection_closed

    @property
    def is_watching(self) -> bool:
        return self._grace_ms >= 0

    def on_heartbeat(self, call: Call[Any], request: BrokerHeartbeatRequest) -> None:
        """Record the connection of a heartbeat that the active controller has accepted."""
        if not self.is_watching or not isinstance(call.exchange, Request):
            return
        connection = call.exchange.connection
        grace_ms = self._grace_ms if call.client.software_name == _OTTLA else self._long_grace_ms
        self._last_heartbeats[request.broker_id] = _LastHeartbeat(request.broker_epoch, connection, grace_ms)
        if connection.is_closed:
            self.on_connection_closed(connection)
        else:
            self._probe_address(request.broker_id)

    def on_connection_closed(self, connection: Connection) -> None:
        """Shorten the sessions of the brokers whose last heartbeat came over a connection that closed."""
        heartbeats = self._last_heartbeats
        for broker_id in [number for number, heartbeat in heartbeats.items() if heartbeat.connection is connection]:
            heartbeat = heartbeats.pop(broker_id)
            if self._controller.is_active:
                self._controller.heartbeats.shorten_session(
                    broker_id, heartbeat.epoch, self._now_ms(), grace_ms=heartbeat.grace_ms
                )
                broker = self._metadata.image.brokers.get(broker_id)
                if broker is not None and broker.epoch == heartbeat.epoch and self._trusts_address(broker):
                    self._spawn(self._end_session_if_dead(broker))

    async def _end_session_if_dead(self, broker: Broker) -> None:
        """End the session of a broker whose connection closed if its port refuses connections too."""
        if await self._is_dead(broker) and self._controller.is_active:
            logger.info("broker %d closed its connection and its port refuses connections; fencing it", broker.id)
            self._end_session(broker)

    def on_activated(self) -> None:
        """Probe the brokers that may have died with the previous active controller or since."""
        self._last_heartbeats.clear()
        self._end_previous_session()
        if self.is_watching:
            self._spawn(self._probe_silent_brokers(self._quorum.consensus.epoch))

    def _end_previous_session(self) -> None:
        """End the session of this node's previous process. Until then, this node's broker could not register."""
        broker = self._metadata.image.brokers.get(self._settings.node_id)
        if (
            self._settings.is_broker
            and broker is not None
            and not broker.fenced
            and not self._is_own_registration(broker)
        ):
            logger.info(
                "broker %d, the previous process of this node, did not shut down cleanly; fencing it", broker.id
            )
            self._end_session(broker)

    async def _probe_silent_brokers(self, epoch: int) -> None:
        """Probe brokers that have sent no heartbeat to this controller, until all have or the epoch ends."""
        dead: set[int] = set()
        while self._controller.is_active and self._quorum.consensus.epoch == epoch:
            registered = self._metadata.image.brokers
            silent = [
                registered[number]
                for number in self._controller.heartbeats.silent_brokers
                if number in registered and number != self._settings.node_id and number not in dead
            ]
            if not silent:
                return
            results = await asyncio.gather(*map(self._probe_silent_broker, silent))
            dead.update(broker.id for broker, is_dead in zip(silent, results, strict=True) if is_dead)
            await asyncio.sleep(_PROBE_INTERVAL_S)

    async def _probe_silent_broker(self, broker: Broker) -> bool:
        """Shorten or end a broker's session if its port refuses connections; return whether it does.

        Each broker is handled as soon as its own probe ends: the probe of a broker that is alive takes longer.
        """
        is_dead = await self._is_dead(broker)
        if is_dead and self._controller.is_active and broker.id in self._controller.heartbeats.silent_brokers:
            logger.info("broker %d has sent no heartbeat and its port refuses connections", broker.id)
            if self._trusts_address(broker):
                self._end_session(broker)
            else:
                heartbeats, now_ms = self._controller.heartbeats, self._now_ms()
                heartbeats.shorten_session(broker.id, broker.epoch, now_ms, grace_ms=self._long_grace_ms)
        return is_dead

    def _end_session(self, broker: Broker) -> None:
        self._controller.heartbeats.shorten_session(broker.id, broker.epoch, self._now_ms(), grace_ms=_NO_GRACE_MS)
        self._controller.fence_stale_brokers_now()

    async def _is_dead(self, broker: Broker) -> bool:
        """Whether a broker's port refuses connections. A connection that times out proves nothing."""
        address = self._address(broker)
        return address is not None and await is_refused(*address) is True

    def _probe_address(self, broker_id: int) -> None:
        """Probe the address of a live broker, until it was reached once in this broker epoch."""
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is not None and not self._trusts_address(broker) and broker_id not in self._probing:
            self._probing.add(broker_id)
            self._spawn(self._record_if_reached(broker))

    async def _record_if_reached(self, broker: Broker) -> None:
        address = self._address(broker)
        if address is not None and await is_refused(*address) is False:
            self._reached_epochs[broker.id] = broker.epoch
        self._probing.discard(broker.id)

    def _trusts_address(self, broker: Broker) -> bool:
        """Whether a refused connection at the broker's address proves that the broker is dead."""
        return self._is_voter(broker) or self._reached_epochs.get(broker.id) == broker.epoch

    def _address(self, broker: Broker) -> tuple[str, int] | None:
        if self._is_voter(broker):
            node = self._quorum.consensus.voters.node(broker.id, self._quorum.listener)
            return None if node is None else (node.host, node.port)
        endpoint = broker.endpoints.get(self._settings.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _is_voter(self, broker: Broker) -> bool:
        return broker.id in self._quorum.consensus.voters.by_id
