"""How long a client waits that had the controller change too much."""

import pytest

from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.requests.throttling import Charging
from ottla.metadata.image.values import quota_entity
from ottla.protocol.errors import ThrottlingQuotaExceeded

NOW = 1_700_000_000_000
SAVED = 11
"""What a quota of one partition a second holds at first."""


class Clock:
    now_ms = NOW

    def __call__(self) -> int:
        return self.now_ms


def charging(clock: Clock, quotas: ClientQuotas, *, is_strict: bool) -> Charging:
    quotas.set(quota_entity({"client-id": "c"}), {"controller_mutation_rate": 1.0})
    return Charging(quotas, clock, "u", "c", is_strict=is_strict)


def test_the_throttle_time_shrinks_while_the_request_waits_for_its_answer() -> None:
    clock = Clock()
    charge = charging(clock, ClientQuotas(), is_strict=False)
    charge(SAVED + 10)
    assert charge.throttle_ms == 10_000
    clock.now_ms += 3_000
    assert charge.throttle_ms == 7_000
    clock.now_ms += 20_000
    assert charge.throttle_ms == 0


def test_a_strict_client_is_refused_the_change_after_the_one_beyond_its_quota() -> None:
    clock, quotas = Clock(), ClientQuotas()
    charge = charging(clock, quotas, is_strict=True)
    charge(SAVED + 10)
    assert charge.throttle_ms == 0
    with pytest.raises(ThrottlingQuotaExceeded):
        charge(1)
    assert charge.throttle_ms == 10_000
    clock.now_ms += 4_000
    assert charge.throttle_ms == 6_000
