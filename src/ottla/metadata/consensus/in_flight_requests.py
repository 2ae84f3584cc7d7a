"""Requests in flight to other nodes: one at a time for each node, with a backoff after a failure.

A change of role drops all of them, so that a late response to an earlier role, such as a pre-vote that reaches a
candidate, is never taken for a response to the present one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.metadata.consensus.config import ConsensusConfig, Randomness
from ottla.metadata.consensus.voters import Node


@dataclass(slots=True)
class _InFlight:
    request_id: int
    until: int


class InFlightRequests:
    """Requests in flight and backoffs, by node."""

    def __init__(self, config: ConsensusConfig, random: Randomness) -> None:
        self._config = config
        self._random = random
        self._next_id = 1
        self._in_flight: dict[int, _InFlight] = {}
        self._backing_off: dict[int, int] = {}
        self._nodes: dict[int, int] = {}

    def reset(self) -> None:
        self._in_flight.clear()
        self._backing_off.clear()
        self._nodes.clear()

    def add(self, node: Node, now_ms: int) -> int:
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._in_flight[node.id] = _InFlight(request_id, now_ms + self._config.request_timeout_ms)
        self._nodes[request_id] = node.id
        return request_id

    def node_of(self, request_id: int) -> int | None:
        """Return the node that the request was sent to, or None if its response is no longer expected."""
        node_id = self._nodes.get(request_id)
        if node_id is None:
            return None
        flight = self._in_flight.get(node_id)
        return node_id if flight is not None and flight.request_id == request_id else None

    def complete(self, request_id: int, now_ms: int, *, succeeded: bool) -> None:
        node_id = self._nodes.pop(request_id, None)
        flight = self._in_flight.get(node_id) if node_id is not None else None
        if node_id is None or flight is None or flight.request_id != request_id:
            return
        del self._in_flight[node_id]
        if not succeeded:
            self._backing_off[node_id] = now_ms + self._config.retry_backoff_ms

    def ready_at(self, node_id: int, now_ms: int) -> int:
        """Return when the next request can be sent to the node; at most `now_ms` if at once."""
        self._expire(now_ms)
        flight = self._in_flight.get(node_id)
        return flight.until if flight is not None else self._backing_off.get(node_id, now_ms)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        return self._backing_off.get(node_id, now_ms) > now_ms

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        """Whether the node's request has timed out. Call this first: the other methods drop expired requests."""
        flight = self._in_flight.get(node_id)
        return flight is not None and flight.until <= now_ms

    def next_timeout(self, now_ms: int) -> int | None:
        """Return when the first request in flight times out, or None if no request is in flight."""
        self._expire(now_ms)
        return min((flight.until for flight in self._in_flight.values()), default=None)

    def pick_bootstrap_server(self, now_ms: int) -> Node | None:
        """Return a random bootstrap server that can be sent a request, or None."""
        servers = self._config.bootstrap
        first = self._random.randrange(len(servers))
        for index in range(len(servers)):
            node = servers[(first + index) % len(servers)]
            if node.id != self._config.local.id and self.ready_at(node.id, now_ms) <= now_ms:
                return node
        return None

    def bootstrap_server_ready_at(self, now_ms: int) -> int | None:
        """Return when a bootstrap server can be sent a request, or None if this node is the only one."""
        others = [node.id for node in self._config.bootstrap if node.id != self._config.local.id]
        return min((self.ready_at(node_id, now_ms) for node_id in others), default=None)

    def _expire(self, now_ms: int) -> None:
        for node_id in [node_id for node_id, flight in self._in_flight.items() if flight.until <= now_ms]:
            self._nodes.pop(self._in_flight.pop(node_id).request_id, None)
        for node_id in [node_id for node_id, until in self._backing_off.items() if until <= now_ms]:
            del self._backing_off[node_id]
