"""Brokers that are gone, as their connections tell, long before their sessions would end.

A process that dies takes its connections with it. The one that counts is the one over which the broker's last heartbeat
came, in the life that it is registered with: when it ends, the broker has a short grace to be heard of again. Ottla's
brokers reconnect and send a heartbeat at once; others do so with their next heartbeat, and have more grace.

Where nothing listens any more, nobody lives: so it is knocked. A broker that is a voter too is looked for where the
quorum has spoken with it, and has no grace when it is not there. For the others only their address for other brokers is
known, which need not be good for controllers. It is tried while the broker lives: where it was found once, it has no
grace either when it is not there. Otherwise the address counts only for a new active controller, which has heard of
nobody yet, and with more grace.

The broker of the controller's own process needs no knocking: if another life of it is registered, that one is over.
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

_OWN_SOFTWARE: Final = "ottla"
_NO_GRACE_MS: Final = -1
"""The session has ended already, by a moment."""
_KNOCK_EVERY_S: Final = 0.25


class _Life(NamedTuple):
    """Over what a broker's last heartbeat came."""

    epoch: int
    connection: Connection
    grace_ms: int


class BrokerLivenessMonitor:
    """Watches the brokers' connections for this node's controller."""

    def __init__(
        self,
        settings: NodeSettings,
        controller: ActiveController,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        runtime: Runtime,
        *,
        is_own_life: Callable[[Broker], bool],
    ) -> None:
        """`is_own_life` tells of a broker with this node's id whether it is the one in this process."""
        self._settings = settings
        self._controller = controller
        self._quorum = quorum
        self._metadata = metadata
        self._is_own_life = is_own_life
        self._spawn = runtime.spawn
        self._now_ms = runtime.now_ms
        self._grace_ms = settings.number(DISCONNECT_GRACE_MS)
        self._long_grace_ms = max(self._grace_ms, 2 * settings.number("broker.heartbeat.interval.ms"))
        self._lives: dict[int, _Life] = {}
        self._found: dict[int, int] = {}
        """Broker → the epoch of the life in which it was found at its address."""
        self._trying: set[int] = set()

    def watch(self, listeners: Iterable[Listener]) -> None:
        """Be told when the controller becomes active, and when a connection to it ends."""
        self._controller.on_active = self.activated
        for listener in listeners:
            if listener.name in self._settings.controller_listener_names:
                listener.on_closed = self.closed

    @property
    def is_watching(self) -> bool:
        return self._grace_ms >= 0

    def heard(self, call: Call[Any], request: BrokerHeartbeatRequest) -> None:
        """The active controller took a heartbeat that came in by a call."""
        if not self.is_watching or not isinstance(call.exchange, Request):
            return
        connection = call.exchange.connection
        grace_ms = self._grace_ms if call.client.software_name == _OWN_SOFTWARE else self._long_grace_ms
        self._lives[request.broker_id] = _Life(request.broker_epoch, connection, grace_ms)
        if connection.is_closed:
            self.closed(connection)
        else:
            self._try_address(request.broker_id)

    def closed(self, connection: Connection) -> None:
        """A connection to the controller's listener has ended."""
        for broker_id in [number for number, life in self._lives.items() if life.connection is connection]:
            life = self._lives.pop(broker_id)
            if self._controller.is_active:
                self._controller.heartbeats.shorten_session(
                    broker_id, life.epoch, self._now_ms(), grace_ms=life.grace_ms
                )
                broker = self._metadata.image.brokers.get(broker_id)
                if broker is not None and broker.epoch == life.epoch and self._is_telling(broker):
                    self._spawn(self._knock(broker))

    async def _knock(self, broker: Broker) -> None:
        """Need nobody wait for a broker whose connection has ended?"""
        if await self._is_gone(broker) and self._controller.is_active:
            logger.info("broker %d has closed its connection, and nothing listens any more where it was", broker.id)
            self._end_session(broker)

    def activated(self) -> None:
        """This node's controller has become active: look for brokers that died with the one before, or meanwhile."""
        self._lives.clear()
        self._end_own_last_life()
        if self.is_watching:
            self._spawn(self._look_for_the_unheard(self._quorum.consensus.epoch))

    def _end_own_last_life(self) -> None:
        """Else this node's broker could not register for a whole session after the process was killed."""
        broker = self._metadata.image.brokers.get(self._settings.node_id)
        if self._settings.is_broker and broker is not None and not broker.fenced and not self._is_own_life(broker):
            logger.info("the last life of this node's broker did not end in order, and is over")
            self._end_session(broker)

    async def _look_for_the_unheard(self, epoch: int) -> None:
        gone: set[int] = set()
        while self._controller.is_active and self._quorum.consensus.epoch == epoch:
            alive = self._metadata.image.brokers
            unheard = [
                alive[number]
                for number in self._controller.heartbeats.silent_brokers
                if number in alive and number != self._settings.node_id and number not in gone
            ]
            if not unheard:
                return
            found = await asyncio.gather(*map(self._miss_if_gone, unheard))
            gone.update(broker.id for broker, is_gone in zip(unheard, found, strict=True) if is_gone)
            await asyncio.sleep(_KNOCK_EVERY_S)

    async def _miss_if_gone(self, broker: Broker) -> bool:
        """Act on each broker at once: to be sure of one that is there takes longer."""
        is_gone = await self._is_gone(broker)
        if is_gone and self._controller.is_active and broker.id in self._controller.heartbeats.silent_brokers:
            logger.info("nothing listens any more where broker %d was", broker.id)
            if self._is_telling(broker):
                self._end_session(broker)
            else:
                heartbeats, now_ms = self._controller.heartbeats, self._now_ms()
                heartbeats.shorten_session(broker.id, broker.epoch, now_ms, grace_ms=self._long_grace_ms)
        return is_gone

    def _end_session(self, broker: Broker) -> None:
        self._controller.heartbeats.shorten_session(broker.id, broker.epoch, self._now_ms(), grace_ms=_NO_GRACE_MS)
        self._controller.fence_at_once()

    async def _is_gone(self, broker: Broker) -> bool:
        """Whether a connection to a broker is refused; one that is not answered at all tells nothing."""
        address = self._address(broker)
        return address is not None and await is_refused(*address) is True

    def _try_address(self, broker_id: int) -> None:
        """Whether a broker that is alive is found where it says that it is, once in its life."""
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is not None and not self._is_telling(broker) and broker_id not in self._trying:
            self._trying.add(broker_id)
            self._spawn(self._find(broker))

    async def _find(self, broker: Broker) -> None:
        address = self._address(broker)
        if address is not None and await is_refused(*address) is False:
            self._found[broker.id] = broker.epoch
        self._trying.discard(broker.id)

    def _is_telling(self, broker: Broker) -> bool:
        """Whether a broker that is not found at its address is gone."""
        return self._is_voter(broker) or self._found.get(broker.id) == broker.epoch

    def _address(self, broker: Broker) -> tuple[str, int] | None:
        if self._is_voter(broker):
            node = self._quorum.consensus.voters.node(broker.id, self._quorum.listener)
            return None if node is None else (node.host, node.port)
        endpoint = broker.endpoints.get(self._settings.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _is_voter(self, broker: Broker) -> bool:
        return broker.id in self._quorum.consensus.voters.by_id
