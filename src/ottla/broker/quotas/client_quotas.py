"""Quotas of clients: how much each may use, and how long it is kept waiting when it used more.

A quota is for a user, a client id, both, or the default of either; the closest one counts. What it is for is also who
shares it: one for a user is shared by all of its clients, a default is had by each user or client id for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.broker.quotas.rates import Rate, TokenBucket
from ottla.metadata.image.values import QuotaEntity, quota_entity

PRODUCED: Final = "producer_byte_rate"
CONSUMED: Final = "consumer_byte_rate"
REQUESTS: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
_MOST_REMEMBERED: Final = 10_000

M = TypeVar("M", Rate, TokenBucket)


class Windows(NamedTuple):
    """Over what time quotas are measured (`quota.window.num`, `quota.window.size.seconds`)."""

    number: int = 11
    size_ms: int = 1000


DEFAULT: Final = Windows()
METRICS: Final = Windows(2, 30_000)
"""Over what time metrics are measured that no quota limits (`metrics.num.samples`, `metrics.sample.window.ms`)."""


class Share(NamedTuple, Generic[M]):
    """A quota that a client has, and what those have used who share it."""

    limit: float
    used: M


class Quotas(Generic[M]):
    """All quotas of one kind."""

    def __init__(self, key: str, new: Callable[[], M]) -> None:
        self.key = key
        self._new: Callable[[], M] = new
        self._limits: dict[QuotaEntity, float] = {}
        self._used: dict[tuple[str | None, str | None], M] = {}
        self._sweep_at = _MOST_REMEMBERED
        """How many users and clients there may be before the idle ones among them are forgotten."""
        self._shares: dict[tuple[str, str], Share[M] | None] = {}

    @property
    def is_active(self) -> bool:
        """Whether anybody has a quota."""
        return bool(self._limits)

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Somebody has another quota from now on, or none."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self._shares.clear()

    def of(self, user: str, client_id: str, now_ms: int) -> Share[M] | None:
        """What a client has, if anything; an address stands in both places."""
        share = self._shares.get((user, client_id))
        if share is None and (user, client_id) not in self._shares:
            share = self._find(user, client_id, now_ms)
            if len(self._shares) >= _MOST_REMEMBERED:
                self._shares.clear()
            self._shares[user, client_id] = share
        return share

    def _find(self, user: str, client_id: str, now_ms: int) -> Share[M] | None:
        for entity, shared_by in _closest_first(user, client_id):
            limit = self._limits.get(entity)
            if limit is None:
                continue
            return Share(limit, self._used_by(shared_by, now_ms))
        return None

    def _used_by(self, shared_by: tuple[str | None, str | None], now_ms: int) -> M:
        """What those have used who share a quota. Those that use nothing are forgotten when there are too many."""
        used = self._used.get(shared_by)
        if used is None:
            if len(self._used) >= self._sweep_at:
                self._used = {who: each for who, each in self._used.items() if not each.is_idle(now_ms)}
                # If nearly all are in use, looking at all of them for each that comes would cost more than they do.
                self._sweep_at = max(_MOST_REMEMBERED, 2 * len(self._used))
            used = self._used[shared_by] = self._new()
        return used


def _closest_first(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, tuple[str | None, str | None]]]:
    """The entities whose quota a client may have, each with who shares it."""
    for of_user in (user, None):
        yield quota_entity({"user": of_user, "client-id": client_id}), (user, client_id)
        yield quota_entity({"user": of_user, "client-id": None}), (user, client_id)
        yield quota_entity({"user": of_user}), (user, None)
    yield quota_entity({"client-id": client_id}), (None, client_id)
    yield quota_entity({"client-id": None}), (None, client_id)


class AddressQuotas(Quotas[Rate]):
    """Quotas of addresses, which have no other names."""

    def _find(self, user: str, client_id: str, now_ms: int) -> Share[Rate] | None:
        for name in (user, None):
            limit = self._limits.get(quota_entity({"ip": name}))
            if limit is not None:
                return Share(limit, self._used_by((user, None), now_ms))
        return None


class ClientQuotas:
    """All quotas that a node holds its clients to."""

    def __init__(
        self, windows: Windows = DEFAULT, controller_windows: Windows = DEFAULT, metric_windows: Windows = METRICS
    ) -> None:
        self.windows = windows
        self.produced = Quotas(PRODUCED, self._rate)
        self.consumed = Quotas(CONSUMED, self._rate)
        self.requests = Quotas(REQUESTS, self._rate)
        self.exempt = Rate(*metric_windows)
        """The time of requests that are exempt from request quotas, as a percentage; counted while there are any."""
        self.mutations = Quotas(MUTATIONS, lambda: TokenBucket(controller_windows.number, controller_windows.size_ms))
        self.connections = AddressQuotas(CONNECTIONS, self._rate)

    def _rate(self) -> Rate:
        return Rate(self.windows.number, self.windows.size_ms)

    @property
    def is_active(self) -> bool:
        """Whether requests have to be counted."""
        return self.produced.is_active or self.consumed.is_active or self.requests.is_active

    def set(self, entity: QuotaEntity, given: Mapping[str, float] | None) -> None:
        """All quotas of an entity, as they are from now on."""
        of_clients: list[Quotas[Rate] | Quotas[TokenBucket]] = [
            self.produced,
            self.consumed,
            self.requests,
            self.mutations,
            self.connections,
        ]
        for quotas in of_clients:
            quotas.set(entity, None if given is None else given.get(quotas.key))

    def use(self, quotas: Quotas[Rate], user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what a client used; returns for how many milliseconds it must wait."""
        share = quotas.of(user, client_id, now_ms)
        if share is None:
            return 0
        share.used.record(amount, now_ms)
        return share.used.throttle_ms(share.limit, now_ms)

    def most_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """What a consumer may be sent at once: more would have it wait for longer than windows count."""
        share = self.consumed.of(user, client_id, now_ms)
        if share is None:
            return float("inf")
        return share.limit * (self.windows.number - 1) * self.windows.size_ms / 1000

    def connect(self, address: str, now_ms: int) -> int:
        """An address connects: how long it must be kept waiting, if it does so too often. Then it does not count."""
        share = self.connections.of(address, "", now_ms)
        if share is None:
            return 0
        share.used.record(1, now_ms)
        throttle_ms = share.used.throttle_ms(share.limit, now_ms)
        if throttle_ms:
            share.used.record(-1, now_ms)
        return min(throttle_ms, self.windows.size_ms)
