"""Quota enforcement: counts what clients use, and mutes the connections of clients that exceed their quotas.

The answer goes out at once and carries the throttle time; the connection is not read from until that time is over
(KIP-219). A fetch that exceeds a quota is the exception: its answer is empty, and its bytes are not charged. A share
fetch keeps its records, because they are already locked for the member.

Replication is exempt from request quotas: fetches of followers, the quorum's own requests, changes of ISRs and
transaction markers. Their time is counted as exempt and never mutes a connection. A request that fails with
CLUSTER_AUTHORIZATION_FAILED is never exempt, and mutes the connection even if it was forwarded.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.requests.authentication import SaslState
from ottla.broker.requests.call import NOTHING, Call, CloseConnection
from ottla.broker.requests.envelope import Enclosed
from ottla.protocol.errors import (
    ClusterAuthorizationFailed,
    FetchSessionIdNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
    ThrottlingQuotaExceeded,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.wire.types import Chunk
from ottla.replication.fetch_sessions import is_follower

# Every request is compared with these: `ApiKey.FETCH` takes 30 ns (Python 3.11), a global almost nothing.
_PRODUCE: Final = ApiKey.PRODUCE
_FETCH: Final = ApiKey.FETCH
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH
_ENVELOPE: Final = ApiKey.ENVELOPE

_LENGTH_BYTES: Final = 4
_PERCENT_PER_NANOSECOND: Final = 100 / 1e9
_STRICT_SINCE: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""API → the first version whose clients understand THROTTLING_QUOTA_EXCEEDED; older ones are only slowed down."""
_AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_SESSION_ERRORS: Final = frozenset(
    error.code for error in (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdMismatch)
)
"""The errors of a fetch that a throttled answer leaves out: it is empty and names no session."""


class Throttling:
    """The quotas of one node's clients, enforced on one kind of listener."""

    exempt: frozenset[ApiKey] = frozenset()
    """The APIs that are not charged, unless the client lacks the right to act for the cluster."""
    exempt_failures: frozenset[ApiKey] = frozenset()
    """The APIs whose failures are not charged, with the same exception."""

    def __init__(self, quotas: ClientQuotas, now_ms: Callable[[], int]) -> None:
        self.quotas = quotas
        self._now_ms = now_ms

    def before(self, call: Call[Any], request: Any) -> None:
        """Prepare a request that is about to be handled."""

    def after(self, call: Call[Any], response: Any, error: Exception | None = None) -> int:
        """Charge a request that was handled, and set its throttle time.

        `error` is what the request failed with as a whole. Returns for how long the connection is muted.
        """
        throttle_ms = int(getattr(response, "throttle_time_ms", 0))
        if not _is_authenticating(call):
            throttle_ms = max(throttle_ms, self._charge(call, response, error))
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        return throttle_ms

    def _charge(self, call: Call[Any], response: Any, error: Exception | None) -> int:
        """Charge the time that a request took; return the throttle time in milliseconds."""
        if not self.quotas.requests.is_active or isinstance(response, CloseConnection):
            return 0
        if self._is_exempt(call, response, error):
            self._charge_exempt(call)
            return 0
        return self._charge_time(call, self._now_ms())

    def _is_exempt(self, call: Call[Any], response: Any, error: Exception | None) -> bool:
        if response is NOTHING:
            return True  # a produce with acks=0 is only charged for its bytes
        if isinstance(error, ClusterAuthorizationFailed):
            return False
        return call.api_key in self.exempt or (error is not None and call.api_key in self.exempt_failures)

    def _charge_time(self, call: Call[Any], now_ms: int) -> int:
        quotas = self.quotas
        throttle_ms = quotas.use(quotas.requests, *_owner(call), _percentage(call), now_ms)
        return min(throttle_ms, quotas.windows.size_ms)

    def _charge_exempt(self, call: Call[Any]) -> None:
        self.quotas.exempt.record(_percentage(call), self._now_ms())

    def charge_of(self, call: Call[Any]) -> Charging | None:
        """Return what counts the partitions that a request creates or deletes; None if no client has such a quota."""
        return self.charge_for(call.api_key, call.version, *_owner(call))

    def charge_for(self, api_key: ApiKey, version: int, user: str, client_id: str) -> Charging | None:
        """Do the same as `charge_of` for a request that did not arrive on a connection."""
        strict_since = _STRICT_SINCE.get(api_key)
        if strict_since is None or not self.quotas.mutations.is_active:
            return None
        return Charging(self.quotas, self._now_ms, user, client_id, is_strict=version >= strict_since)


class BrokerThrottling(Throttling):
    """Quotas on a broker's listeners: bytes produced and consumed, and the time of requests."""

    exempt = frozenset({ApiKey.WRITE_TXN_MARKERS})

    def before(self, call: Call[Any], request: Any) -> None:
        """Limit what a consumer may read at once, and have the answer of a fetch charged before it is encoded."""
        quotas = self.quotas
        if call.api_key == _FETCH:
            if is_follower(request, call.version):
                if quotas.requests.is_active:
                    call.amend = lambda response: self._replicated(call, response)
            elif quotas.consumed.is_active or quotas.requests.is_active:
                most = quotas.max_in_window(*_owner(call), self._now_ms())
                if request.max_bytes > most:
                    request.max_bytes = int(most)
                if request.min_bytes > request.max_bytes:
                    request.min_bytes = request.max_bytes
                call.amend = lambda response: self._fetched(call, request, response)
        elif call.api_key == _SHARE_FETCH and quotas.consumed.is_active:
            request.max_bytes = int(min(request.max_bytes, quotas.max_in_window(*_owner(call), self._now_ms())))

    def _charge(self, call: Call[Any], response: Any, error: Exception | None) -> int:
        key, quotas = call.api_key, self.quotas
        if key == _FETCH:
            return 0  # charged by `_fetched` or `_replicated`
        throttle_ms = 0
        if key == _PRODUCE and quotas.produced.is_active and error is None:
            size = getattr(call.exchange, "received_bytes", 0)
            throttle_ms = quotas.use(quotas.produced, *_owner(call), size, self._now_ms())
        elif key == _SHARE_FETCH and quotas.consumed.is_active:
            throttle_ms = quotas.use(quotas.consumed, *_owner(call), _size_of(call, response), self._now_ms())
        return max(throttle_ms, super()._charge(call, response, error))

    def _replicated(self, call: Call[Any], response: FetchResponse) -> FetchResponse:
        """Count a follower's fetch as exempt, and return its answer."""
        self._charge_exempt(call)
        return response

    def _fetched(self, call: Call[Any], request: FetchRequest, response: FetchResponse) -> FetchResponse:
        """Return the answer to a consumer, or an empty one if it exceeds a quota; the larger throttle time counts."""
        quotas, owner, now_ms = self.quotas, _owner(call), self._now_ms()
        throttle_ms = self._charge_time(call, now_ms) if quotas.requests.is_active else 0
        if response.error_code and response.error_code not in _SESSION_ERRORS:
            response.throttle_time_ms = throttle_ms
            return response
        share = quotas.consumed.find_share(*owner, now_ms)
        size = 0
        if share is not None:
            size = _size_of(call, response)
            share.usage.record(size, now_ms)
            throttle_ms = max(throttle_ms, share.usage.throttle_ms(share.limit, now_ms))
        if not throttle_ms:
            return response
        if share is not None:
            share.usage.record(-size, now_ms)  # these bytes are not sent
        session_id = call.node.sessions.take_back(request, response)
        return FetchResponse(session_id=session_id, throttle_time_ms=throttle_ms)


class ControllerThrottling(Throttling):
    """Quotas on a controller's listeners: the time of requests, both direct ones and those that brokers forward.

    A forwarded request is charged to its client, and its answer carries the throttle time; the client's broker mutes
    the client. The envelope itself is not charged.
    """

    exempt = frozenset(
        {
            ApiKey.FETCH,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.ALTER_PARTITION,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
            ApiKey.UPDATE_RAFT_VOTER,
        }
    )
    exempt_failures = frozenset({ApiKey.ENVELOPE, ApiKey.UPDATE_FEATURES, ApiKey.ALLOCATE_PRODUCER_IDS})

    def after(self, call: Call[Any], response: Any, error: Exception | None = None) -> int:
        if call.api_key == _ENVELOPE and error is None:
            return int(getattr(response, "throttle_time_ms", 0))
        throttle_ms = super().after(call, response, error)
        exchange = call.exchange
        if isinstance(exchange, Enclosed) and isinstance(error, ClusterAuthorizationFailed):
            exchange.mute_ms = throttle_ms
        return throttle_ms


class Charging:
    """Counts the partitions that one request creates or deletes, and refuses more when the quota is used up."""

    def __init__(
        self, quotas: ClientQuotas, now_ms: Callable[[], int], user: str, client_id: str, *, is_strict: bool
    ) -> None:
        self._quotas = quotas
        self._now_ms = now_ms
        self._owner = user, client_id
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._throttled_at_ms = 0

    @property
    def throttle_ms(self) -> int:
        """How long the client must still wait."""
        return max(0, self._throttle_ms - (self._now_ms() - self._throttled_at_ms))

    def __call__(self, partitions: int) -> None:
        """Charge partitions; raise ThrottlingQuotaExceeded if clients of this version understand it."""
        now_ms = self._now_ms()
        share = self._quotas.mutations.find_share(*self._owner, now_ms)
        if share is None:
            return
        self._throttled_at_ms = now_ms
        if self._is_strict:
            self._throttle_ms = share.usage.throttle_ms(share.limit, now_ms)
            if self._throttle_ms:
                raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
            share.usage.take(partitions, share.limit, now_ms)
        else:
            share.usage.take(partitions, share.limit, now_ms)
            self._throttle_ms = share.usage.throttle_ms(share.limit, now_ms)


def _is_authenticating(call: Call[Any]) -> bool:
    """Return whether a request belongs to SASL authentication, which no quota counts."""
    authentication = call.client.authentication
    return authentication is not None and (
        call.api_key in _AUTHENTICATION or authentication.state is not SaslState.AUTHENTICATED
    )


def _percentage(call: Call[Any]) -> float:
    """Return the time that the handler of a request took, as a percentage of a second."""
    exchange = call.exchange
    started_ns = getattr(exchange, "started_ns", 0)
    if not started_ns:
        return 0.0
    ended_ns = getattr(exchange, "handled_ns", 0) or perf_counter_ns()
    return float((ended_ns - started_ns) * _PERCENT_PER_NANOSECOND)


def _size_of(call: Call[Any], response: Any) -> int:
    """Return the size of an answer on the wire in bytes."""
    chunks: list[Chunk] = []
    call.route.write(response, chunks.append)
    return sum(map(len, chunks)) + _LENGTH_BYTES


def _owner(call: Call[Any]) -> tuple[str, str]:
    """Return the user's name and the client id, which determine the quotas."""
    return call.client.principal.partition(":")[2], call.client_id or ""
