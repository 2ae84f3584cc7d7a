"""Connections to the active controller while it is on another node: one for each kind of traffic, so that none waits
behind another. Heartbeats above all must not.

A connection is kept until it breaks or another node leads. What breaks it is told as NotController: whoever asked looks
again for the active controller, which may be another one by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.broker.metrics.errors_in import Look, errors_in
from ottla.client.connection import Connection
from ottla.metadata.consensus.voters import Node
from ottla.protocol.errors import AuthenticationError, NetworkFailed, NotController, RequestTimedOut
from ottla.security.principal_mapping import ANONYMOUS
from ottla.security.settings import SecurityProvider, plaintext

HEARTBEATS: Final = "heartbeat"
FORWARDING: Final = "forwarding"
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 30.0


class ControllerLink:
    """The active controller, as far as this node can reach it over the network."""

    def __init__(self, node_id: int, security: SecurityProvider = plaintext) -> None:
        self._node_id = node_id
        self._security = security
        self.leader: Node | None = None
        """The node with the active controller, if it is another one and known."""
        self._connected_to: Node | None = None
        self._lanes: dict[str, _Lane] = {}
        self._looks: dict[type, Look | None] = {}
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self.on_lost: list[Callable[[str], None]] = []
        """Told which lane's connection broke while it was in use."""

    @property
    def user(self) -> str:
        """The user that this node is for controllers, as far as its settings say: who it logs in as."""
        sasl = self._security().sasl
        return sasl.user if sasl is not None and sasl.user else ANONYMOUS.partition(":")[2]

    def client_id(self, lane: str) -> str:
        """The client id of one lane's connection."""
        return f"node-{self._node_id}-{lane}"

    @property
    def versions(self) -> Mapping[int, tuple[int, int]] | None:
        """The APIs that the controller serves, with their versions; None while they are not known."""
        return self._versions

    def lead(self, leader: Node | None) -> None:
        """Another node leads: what was sent to the one before is not waited for. While none is known to lead, its
        connections are kept, as it may do so again: closing them would look as if this node had died."""
        self.leader = leader
        if leader is not None and leader != self._connected_to:
            self.close()
            self._connected_to = leader

    def close(self) -> None:
        """Give up all connections."""
        self._versions = None
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close()

    def require_leader(self) -> Node:
        """The node with the active controller; raises NotController if none is known."""
        if self.leader is None:
            raise NotController("no active controller is known")
        return self.leader

    async def send(self, lane: str, request: Any, timeout_s: float) -> Any:
        """The controller's answer; raises NotController where that is not the node which leads, or not reachable."""
        leader = self.require_leader()
        try:
            connection = await self._connection(lane, leader, min(timeout_s, _CONNECT_S))
            answer = await connection.send(request, timeout_s=min(timeout_s, _ANSWER_S))
        except (NetworkFailed, RequestTimedOut, AuthenticationError) as error:
            raise NotController(f"controller {leader.id} does not answer: {error}") from error
        if NotController.code in self._errors(answer):
            raise NotController(f"node {leader.id} is not the active controller")
        return answer

    async def _connection(self, name: str, leader: Node, timeout_s: float) -> Connection:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        async with lane.opening:
            if lane.connection is None or not lane.connection.is_open:
                made = await Connection.connect(
                    leader.host,
                    leader.port,
                    client_id=self.client_id(name),
                    timeout_s=timeout_s,
                    security=self._security(),
                )
                if self._lanes.get(name) is not lane:  # another node leads by now
                    made.close()
                    raise NotController("another controller is active now")
                lane.connection = made
                made.on_broken = lambda: self._broken(name, lane)
                self._versions = made.versions
            return lane.connection

    def _broken(self, name: str, lane: _Lane) -> None:
        if self._lanes.get(name) is lane:
            for told in self.on_lost:
                told(name)

    def _errors(self, answer: Any) -> set[int]:
        kind = type(answer)
        if kind not in self._looks:
            self._looks[kind] = errors_in(kind)
        look = self._looks[kind]
        found = _Found()
        if look is not None:
            look(found, answer)
        return found.codes


class _Lane:
    """One connection, opened by one task at a time."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.connection: Connection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class _Found:
    """The error codes of an answer."""

    def __init__(self) -> None:
        self.codes: set[int] = set()

    def failed(self, codes: set[int]) -> None:
        self.codes = codes
