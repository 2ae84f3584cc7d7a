"""The network side of a node: listeners, the workers behind them, and the router between the two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ottla.broker.metrics.request_metrics import on_sent
from ottla.broker.network.connection import Connection
from ottla.broker.network.listener import ConnectionCounts, Listener
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.request_workers import WorkerPools
from ottla.broker.requests.router import RequestRouter
from ottla.config.node_settings import NodeSettings
from ottla.node.listener_security import ListenerSecurity
from ottla.replication.runtime import Runtime


class SocketServer:
    """The listeners of a node. A listener belongs either to the broker or to the controller."""

    def __init__(self, settings: NodeSettings, runtime: Runtime, security: ListenerSecurity) -> None:
        self._settings = settings
        self._loop = runtime.loop
        self._security = security
        self._router = RequestRouter(security.client_of)
        self.pools = WorkerPools(self._router.route, settings, runtime)
        self.connections = ConnectionCounts()
        self.listeners: list[Listener] = []
        self.ports: dict[str, int] = {}
        """Listener → the port that it is bound to."""

    def bind(self, broker: Dispatch[BrokerNode], controller: Dispatch[ControllerNode]) -> None:
        """Bind all listeners. None of them accepts connections yet."""
        for endpoint in self._settings.listeners:
            is_controllers = endpoint.name in self._settings.controller_listener_names
            listener = Listener(
                self._loop,
                endpoint.name,
                (self.pools.controller if is_controllers else self.pools.broker).request_channel,
                limits=self._settings.limits_of(endpoint.name),
                counts=self.connections,
                on_sent=on_sent,
                tls=self._security.context_of(endpoint.name),
            )
            self.ports[endpoint.name] = listener.bind(endpoint.host, endpoint.port)
            self.listeners.append(listener)
            dispatch: Dispatch[Any] = controller if is_controllers else broker
            self._router.add(endpoint.name, self._security.gated(endpoint.name, dispatch))
            if not is_controllers:
                listener.on_closed = partial(_forget_connection, broker.node)

    def start_controller_listeners(self) -> None:
        """Accept the connections of other nodes' brokers and controllers."""
        for listener in self.listeners:
            if listener.name in self._settings.controller_listener_names:
                listener.start()

    def listen(self) -> None:
        """Let clients queue in the backlog. Before this call they are refused, and try other brokers."""
        for listener in self.listeners:
            listener.listen()

    def start(self) -> None:
        """Accept connections on all listeners."""
        for listener in self.listeners:
            listener.start()

    def close_broker_listeners(self) -> None:
        """Close the connections of clients; controllers still reach this node."""
        for listener in self._broker_listeners():
            listener.close()

    def close(self) -> None:
        """Close all listeners and their connections."""
        for listener in self.listeners:
            listener.close()

    def _broker_listeners(self) -> Iterator[Listener]:
        return (
            listener for listener in self.listeners if listener.name not in self._settings.controller_listener_names
        )


def _forget_connection(broker: BrokerNode, connection: Connection) -> None:
    """Drop what the broker keeps for a client's connection."""
    broker.telemetry.forget(connection.session)
    broker.sharing.on_disconnect(connection.session)
