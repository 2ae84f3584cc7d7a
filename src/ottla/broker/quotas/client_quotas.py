"""Client quotas: how much each client may use, and how long it is throttled when it used more.

A quota is for a user, a client id, both, or the default of either. The most specific one counts. It also decides which
clients share the usage: all clients of a user share the quota of that user, but a default quota is separate for each
user or client id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.broker.quotas.rates import Rate, TokenBucket
from ottla.metadata.image.values import QuotaEntity, quota_entity

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_MAX_REMEMBERED: Final = 10_000

M = TypeVar("M", Rate, TokenBucket)


class QuotaWindows(NamedTuple):
    """The windows over which quotas are measured (`quota.window.num`, `quota.window.size.seconds`)."""

    number: int = 11
    size_ms: int = 1000


DEFAULT_WINDOWS: Final = QuotaWindows()
METRIC_WINDOWS: Final = QuotaWindows(2, 30_000)
"""The windows of metrics without a quota (`metrics.num.samples`, `metrics.sample.window.ms`)."""


class QuotaShare(NamedTuple, Generic[M]):
    """The quota of a client, and the usage of all clients that share it."""

    limit: float
    usage: M


class Quotas(Generic[M]):
    """All quotas of one key, and their usage."""

    def __init__(self, key: str, new: Callable[[], M]) -> None:
        self.key = key
        self._new: Callable[[], M] = new
        self._limits: dict[QuotaEntity, float] = {}
        self._usages: dict[tuple[str | None, str | None], M] = {}
        self._sweep_at = _MAX_REMEMBERED
        """The number of users and clients at which the idle ones are forgotten."""
        self._shares: dict[tuple[str, str], QuotaShare[M] | None] = {}

    @property
    def is_active(self) -> bool:
        """Whether any entity has a quota."""
        return bool(self._limits)

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set the quota of an entity; None removes it."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self._shares.clear()

    def find_share(self, user: str, client_id: str, now_ms: int) -> QuotaShare[M] | None:
        """Return the share of a client, or None without a quota. For addresses, `client_id` is empty."""
        share = self._shares.get((user, client_id))
        if share is None and (user, client_id) not in self._shares:
            share = self._find(user, client_id, now_ms)
            if len(self._shares) >= _MAX_REMEMBERED:
                self._shares.clear()
            self._shares[user, client_id] = share
        return share

    def _find(self, user: str, client_id: str, now_ms: int) -> QuotaShare[M] | None:
        for entity, shared_by in _most_specific_first(user, client_id):
            limit = self._limits.get(entity)
            if limit is None:
                continue
            return QuotaShare(limit, self._usage_of(shared_by, now_ms))
        return None

    def _usage_of(self, shared_by: tuple[str | None, str | None], now_ms: int) -> M:
        """Return the usage of a quota's clients. If there are too many usages, the idle ones are forgotten."""
        usage = self._usages.get(shared_by)
        if usage is None:
            if len(self._usages) >= self._sweep_at:
                self._usages = {key: usage for key, usage in self._usages.items() if not usage.is_idle(now_ms)}
                # If nearly all are in use, a scan for each new client would cost more than they do.
                self._sweep_at = max(_MAX_REMEMBERED, 2 * len(self._usages))
            usage = self._usages[shared_by] = self._new()
        return usage


def _most_specific_first(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, tuple[str | None, str | None]]]:
    """Yield the entities whose quota applies to a client, most specific first, each with the key of its usage."""
    for of_user in (user, None):
        yield quota_entity({"user": of_user, "client-id": client_id}), (user, client_id)
        yield quota_entity({"user": of_user, "client-id": None}), (user, client_id)
        yield quota_entity({"user": of_user}), (user, None)
    yield quota_entity({"client-id": client_id}), (None, client_id)
    yield quota_entity({"client-id": None}), (None, client_id)


class AddressQuotas(Quotas[Rate]):
    """Quotas of IP addresses."""

    def _find(self, user: str, client_id: str, now_ms: int) -> QuotaShare[Rate] | None:
        for name in (user, None):
            limit = self._limits.get(quota_entity({"ip": name}))
            if limit is not None:
                return QuotaShare(limit, self._usage_of((user, None), now_ms))
        return None


class ClientQuotas:
    """All client quotas of a node."""

    def __init__(
        self,
        windows: QuotaWindows = DEFAULT_WINDOWS,
        controller_windows: QuotaWindows = DEFAULT_WINDOWS,
        metric_windows: QuotaWindows = METRIC_WINDOWS,
    ) -> None:
        self.windows = windows
        self.produced = Quotas(PRODUCER_BYTE_RATE, self._rate)
        self.consumed = Quotas(CONSUMER_BYTE_RATE, self._rate)
        self.requests = Quotas(REQUEST_PERCENTAGE, self._rate)
        self.exempt = Rate(*metric_windows)
        """The time of requests that are exempt from request quotas, in percent; measured while any quota is set."""
        self.mutations = Quotas(
            CONTROLLER_MUTATION_RATE, lambda: TokenBucket(controller_windows.number, controller_windows.size_ms)
        )
        self.connections = AddressQuotas(CONNECTION_CREATION_RATE, self._rate)

    def _rate(self) -> Rate:
        return Rate(self.windows.number, self.windows.size_ms)

    @property
    def is_active(self) -> bool:
        """Whether the usage of requests has to be measured."""
        return self.produced.is_active or self.consumed.is_active or self.requests.is_active

    def set(self, entity: QuotaEntity, given: Mapping[str, float] | None) -> None:
        """Replace all quotas of an entity; None removes them."""
        tables: list[Quotas[Rate] | Quotas[TokenBucket]] = [
            self.produced,
            self.consumed,
            self.requests,
            self.mutations,
            self.connections,
        ]
        for quotas in tables:
            quotas.set(entity, None if given is None else given.get(quotas.key))

    def use(self, quotas: Quotas[Rate], user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record the usage of a client; return its throttle time in milliseconds."""
        share = quotas.find_share(user, client_id, now_ms)
        if share is None:
            return 0
        share.usage.record(amount, now_ms)
        return share.usage.throttle_ms(share.limit, now_ms)

    def max_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """Return the most that one fetch may return: more would throttle the consumer beyond the windows."""
        share = self.consumed.find_share(user, client_id, now_ms)
        if share is None:
            return float("inf")
        return share.limit * (self.windows.number - 1) * self.windows.size_ms / 1000

    def record_connection(self, address: str, now_ms: int) -> int:
        """Record a new connection; return its throttle time. A throttled connection does not count."""
        share = self.connections.find_share(address, "", now_ms)
        if share is None:
            return 0
        share.usage.record(1, now_ms)
        throttle_ms = share.usage.throttle_ms(share.limit, now_ms)
        if throttle_ms:
            share.usage.record(-1, now_ms)
        return min(throttle_ms, self.windows.size_ms)
