"""Holds clients to their quotas: what they use is counted, and who used too much is not read from for a while.

The answer goes out at once and tells the client for how long (KIP-219). Only a fetch that would exceed its quota is
answered without records: they are sent when there is room for them. Not so a share fetch, whose records are locked for
the member already. Requests of brokers are exempt.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from ottla.access.quotas import ClientQuotas
from ottla.api.call import NOTHING, Call
from ottla.errors import ThrottlingQuotaExceeded
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.replica.sessions import is_follower
from ottla.wire.types import Chunk

_PRODUCE: Final = 0
_FETCH: Final = 1
_SHARE_FETCH: Final = 78
_EXEMPT: Final = frozenset({27, 83, 84, 85, 86, 87})
"""What brokers ask of each other."""
_LENGTH_BYTES: Final = 4
_PERCENT_PER_NANOSECOND: Final = 100 / 1e9
_STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3}
"""From these versions on clients understand that they are to come again; before, they are only slowed down."""


class Throttling:
    """The quotas of one node's clients, for its dispatch."""

    def __init__(self, quotas: ClientQuotas, now_ms: Callable[[], int]) -> None:
        self.quotas = quotas
        self._now_ms = now_ms

    def before(self, call: Call[Any], request: Any) -> None:
        """A request is about to be handled."""
        if call.api_key == _FETCH and self.quotas.consumed.is_active and not is_follower(request, call.version):
            user, client_id = _who(call)
            most = self.quotas.most_in_window(user, client_id, self._now_ms())
            if request.max_bytes > most:
                request.max_bytes = int(most)
            call.amend = lambda response: self._fetched(call, request, response)
        elif call.api_key == _SHARE_FETCH and self.quotas.consumed.is_active:
            request.max_bytes = int(min(request.max_bytes, self.quotas.most_in_window(*_who(call), self._now_ms())))

    def after(self, call: Call[Any], response: Any) -> int:
        """A request was handled: for how long its connection is not to be read from."""
        throttle_ms = int(getattr(response, "throttle_time_ms", 0))
        quotas = self.quotas
        if call.api_key in _EXEMPT:
            return throttle_ms
        user, client_id = _who(call)
        now_ms = self._now_ms()
        exchange = call.exchange
        if call.api_key == _PRODUCE and quotas.produced.is_active:
            size = getattr(exchange, "received_bytes", 0)
            throttle_ms = max(throttle_ms, quotas.use(quotas.produced, user, client_id, size, now_ms))
        if call.api_key == _SHARE_FETCH and quotas.consumed.is_active:
            used_ms = quotas.use(quotas.consumed, user, client_id, _size_of(call, response), now_ms)
            throttle_ms = max(throttle_ms, used_ms)
        if quotas.requests.is_active and response is not NOTHING:
            started_ns = getattr(exchange, "started_ns", 0)
            ended_ns = getattr(exchange, "handled_ns", 0) or perf_counter_ns()
            used = (ended_ns - started_ns) * _PERCENT_PER_NANOSECOND if started_ns else 0
            waits_ms = quotas.use(quotas.requests, user, client_id, used, now_ms)
            throttle_ms = max(throttle_ms, min(waits_ms, quotas.windows.size_ms))
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return throttle_ms

    def _fetched(self, call: Call[Any], request: FetchRequest, response: FetchResponse) -> FetchResponse:
        """The answer to a consumer, or one without records if it has to wait for them."""
        user, client_id = _who(call)
        now_ms = self._now_ms()
        size = _size_of(call, response)
        throttle_ms = self.quotas.use(self.quotas.consumed, user, client_id, size, now_ms)
        if not throttle_ms:
            return response
        share = self.quotas.consumed.of(user, client_id, now_ms)
        if share is not None:
            share.used.record(-size, now_ms)  # it is not sent
        session_id = call.node.sessions.take_back(request, response)
        return FetchResponse(session_id=session_id, throttle_time_ms=throttle_ms)

    def charge_of(self, call: Call[Any]) -> Charging | None:
        """What counts the changes that a request makes to topics; None if it need not be counted."""
        strict_since = _STRICT_SINCE.get(call.api_key)
        if strict_since is None or not self.quotas.mutations.is_active:
            return None
        return Charging(self, call, is_strict=call.version >= strict_since)


class Charging:
    """Counts the partitions that one request makes or deletes, and refuses more when the quota is used up."""

    def __init__(self, throttling: Throttling, call: Call[Any], *, is_strict: bool) -> None:
        self._throttling = throttling
        self._who = _who(call)
        self._is_strict = is_strict
        self.throttle_ms = 0

    def __call__(self, partitions: int) -> None:
        """Count; raises if clients of this version can be told to come again."""
        now_ms = self._throttling._now_ms()
        share = self._throttling.quotas.mutations.of(*self._who, now_ms)
        if share is None:
            return
        if self._is_strict:
            self.throttle_ms = share.used.throttle_ms(share.limit, now_ms)
            if self.throttle_ms:
                raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
            share.used.take(partitions, share.limit, now_ms)
        else:
            share.used.take(partitions, share.limit, now_ms)
            self.throttle_ms = share.used.throttle_ms(share.limit, now_ms)


def _size_of(call: Call[Any], response: Any) -> int:
    """As it will be sent."""
    chunks: list[Chunk] = []
    call.route.write(response, chunks.append)
    return sum(map(len, chunks)) + _LENGTH_BYTES


def _who(call: Call[Any]) -> tuple[str, str]:
    """The user's name and the client id, as quotas know them."""
    return call.client.principal.partition(":")[2], call.client_id or ""
