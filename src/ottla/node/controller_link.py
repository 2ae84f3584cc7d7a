"""Connections to the active controller while it is on another node: one for each kind of traffic.

Each kind has a connection of its own so that heartbeats never wait behind other requests. Every network failure is
raised as NotController, because the caller then looks for the active controller again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.broker.metrics.error_search import ResponseObserver, compile_error_search
from ottla.client.connection_pool import ConnectionPool
from ottla.metadata.consensus.voters import Node
from ottla.protocol.errors import AuthenticationError, NetworkFailed, NotController, RequestTimedOut
from ottla.security.principal_mapping import ANONYMOUS
from ottla.security.settings import SecurityProvider, plaintext

HEARTBEATS: Final = "heartbeat"
FORWARDING: Final = "forwarding"
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 30.0


class ControllerLink:
    """The active controller on another node."""

    def __init__(self, node_id: int, security: SecurityProvider = plaintext) -> None:
        self._node_id = node_id
        self._security = security
        self.leader: Node | None = None
        """The node with the active controller, if it is known and not this node."""
        self._connected_to: Node | None = None
        self._pool = ConnectionPool(f"node-{node_id}", security, on_broken=self._broken)
        self._error_searches: dict[type, ResponseObserver | None] = {}
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self.on_lost: list[Callable[[str], None]] = []
        """Called with the traffic whose connection broke."""

    @property
    def user(self) -> str:
        """The user that this node authenticates as, by its settings."""
        sasl = self._security().sasl
        return sasl.user if sasl is not None and sasl.user else ANONYMOUS.partition(":")[2]

    def client_id(self, traffic: str) -> str:
        """Return the client id of the connection for one kind of traffic."""
        return f"node-{self._node_id}-{traffic}"

    @property
    def versions(self) -> Mapping[int, tuple[int, int]] | None:
        """API → versions that the controller serves; None until a connection is open."""
        return self._versions

    def lead(self, leader: Node | None) -> None:
        """Follow a change of leader. Requests to the previous leader fail.

        If no leader is known, the connections stay open: the same node may be elected again, and to the controller a
        closed connection looks like a broker that died.
        """
        self.leader = leader
        if leader is not None and leader != self._connected_to:
            self.close()
            self._connected_to = leader

    def close(self) -> None:
        """Close all connections."""
        self._versions = None
        self._pool.close()

    def require_leader(self) -> Node:
        """Return the node with the active controller. Raise NotController if it is unknown."""
        if self.leader is None:
            raise NotController("no active controller is known")
        return self.leader

    async def send(self, traffic: str, request: Any, timeout_s: float) -> Any:
        """Return the controller's answer. Raise NotController if the node cannot be reached or does not lead."""
        leader = self.require_leader()
        try:
            connection = await self._pool.connection(
                leader.host, leader.port, purpose=traffic, timeout_s=min(timeout_s, _CONNECT_S)
            )
            self._versions = connection.versions
            answer = await connection.send(request, timeout_s=min(timeout_s, _ANSWER_S))
        except (NetworkFailed, RequestTimedOut, AuthenticationError) as error:
            raise NotController(f"controller {leader.id} does not answer: {error}") from error
        if NotController.code in self._errors(answer):
            raise NotController(f"node {leader.id} is not the active controller")
        return answer

    def _broken(self, traffic: str) -> None:
        for notify in self.on_lost:
            notify(traffic)

    def _errors(self, answer: Any) -> set[int]:
        kind = type(answer)
        if kind not in self._error_searches:
            self._error_searches[kind] = compile_error_search(kind)
        search = self._error_searches[kind]
        errors = _ErrorCodes()
        if search is not None:
            search(errors, answer)
        return errors.codes


class _ErrorCodes:
    """The error codes of an answer."""

    def __init__(self) -> None:
        self.codes: set[int] = set()

    def failed(self, codes: set[int]) -> None:
        self.codes = codes
