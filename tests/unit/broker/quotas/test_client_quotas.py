"""Client quotas: which quota applies, which clients share it, and throttle times."""

import pytest

from ottla.broker.quotas.client_quotas import ClientQuotas, QuotaWindows
from ottla.broker.quotas.rates import Rate, TokenBucket
from ottla.metadata.image.values import quota_entity

NOW = 1_700_000_000_000
Entity = dict[str, str | None]
ENTITIES: list[Entity] = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]


def produced(quotas: ClientQuotas, size: float, user: str = "u", client_id: str = "c", now_ms: int = NOW) -> int:
    return quotas.use(quotas.produced, user, client_id, size, now_ms)


class TestMostSpecificQuota:
    @pytest.mark.parametrize("number", range(len(ENTITIES)))
    def test_the_most_specific_quota_applies(self, number: int) -> None:
        quotas = ClientQuotas()
        for place, entity in enumerate(ENTITIES[number:]):
            quotas.set(quota_entity(entity), {"producer_byte_rate": 100.0 + place})
        share = quotas.produced.find_share("u", "c", NOW)
        assert share is not None
        assert share.limit == 100

    def test_without_a_quota_there_is_no_limit(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"user": "somebody"}), {"producer_byte_rate": 1.0})
        assert quotas.is_active
        assert produced(quotas, 1e12) == 0

    def test_a_removed_quota_no_longer_counts(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"user": "u"}), {"producer_byte_rate": 1.0})
        assert produced(quotas, 1e6) > 0
        quotas.set(quota_entity({"user": "u"}), None)
        assert not quotas.is_active
        assert produced(quotas, 1e6) == 0

    def test_usage_stays_when_the_limit_changes(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"user": "u"}), {"producer_byte_rate": 1e6})
        assert produced(quotas, 50_000) == 0
        quotas.set(quota_entity({"user": "u"}), {"producer_byte_rate": 1000.0})
        assert produced(quotas, 0) == 40_000


class TestSharing:
    def test_all_clients_of_a_user_share_its_quota(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"user": "u"}), {"producer_byte_rate": 1000.0})
        assert produced(quotas, 10_000, client_id="one") == 0
        assert produced(quotas, 10_000, client_id="two") == 10_000
        assert produced(quotas, 10_000, user="other") == 0

    def test_a_default_quota_is_not_shared(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"client-id": None}), {"producer_byte_rate": 1000.0})
        assert produced(quotas, 10_000, client_id="one") == 0
        assert produced(quotas, 10_000, client_id="two") == 0
        assert produced(quotas, 10_000, client_id="one", user="other") == 10_000

    def test_idle_clients_are_forgotten_when_there_are_many(self) -> None:
        quotas = ClientQuotas()
        quotas.set(quota_entity({"client-id": None}), {"producer_byte_rate": 1000.0})
        for number in range(30_000):
            produced(quotas, 1, client_id=str(number), now_ms=NOW + number * 10)
        assert len(quotas.produced._usages) <= 10_000


class TestRate:
    def test_a_rate_is_measured_over_its_windows(self) -> None:
        rate = Rate(11, 1000)
        rate.record(1000, NOW)
        assert rate.measure(NOW) == (100, 10_000)
        assert rate.measure(NOW + 9_999) == (1000 * 1000 / 10_999, 10_999)
        assert rate.measure(NOW + 11_000) == (0, 1000)

    def test_windows_slide(self) -> None:
        rate = Rate(3, 1000)
        for second in range(10):
            rate.record(500, NOW + second * 1000)
        assert rate.measure(NOW + 9500)[0] == 1500 * 1000 / 2500

    def test_the_throttle_time_ends_when_the_rate_is_at_the_limit(self) -> None:
        rate = Rate(11, 1000)
        rate.record(30_000, NOW)
        assert rate.throttle_ms(1000, NOW) == 20_000
        assert rate.throttle_ms(3000, NOW) == 0

    def test_a_rate_is_idle_when_all_windows_have_passed(self) -> None:
        rate = Rate(11, 1000)
        assert rate.is_idle(NOW)
        rate.record(1, NOW)
        assert not rate.is_idle(NOW + 10_000)
        assert rate.is_idle(NOW + 11_000)


class TestTokenBucket:
    def test_a_bucket_may_be_overdrawn_once(self) -> None:
        bucket = TokenBucket(11, 1000)
        assert bucket.throttle_ms(2, NOW) == 0
        bucket.take(22, 2, NOW)
        assert bucket.throttle_ms(2, NOW) == 0
        bucket.take(4, 2, NOW)
        assert bucket.throttle_ms(2, NOW) == 2000
        assert bucket.throttle_ms(2, NOW + 500) == 1500
        assert bucket.throttle_ms(2, NOW + 2000) == 0

    def test_a_bucket_holds_the_tokens_of_its_windows(self) -> None:
        bucket = TokenBucket(11, 1000)
        bucket.take(0, 1, NOW)
        bucket.take(12, 1, NOW + 1_000_000)
        assert bucket.throttle_ms(1, NOW + 1_000_000) == 1000
        assert not bucket.is_idle(NOW + 1_000_000)
        bucket.take(0, 1, NOW + 1_001_000)
        assert bucket.is_idle(NOW + 1_020_000)


class TestAddresses:
    def test_an_address_that_connects_too_often_waits_a_window_at_most(self) -> None:
        quotas = ClientQuotas(QuotaWindows(2, 1000))
        quotas.set(quota_entity({"ip": None}), {"connection_creation_rate": 1.0})
        waits = [quotas.record_connection("10.0.0.1", NOW) for _ in range(4)]
        assert waits == [0, 1000, 1000, 1000]
        assert quotas.record_connection("10.0.0.2", NOW) == 0
        quotas.set(quota_entity({"ip": "10.0.0.1"}), {"connection_creation_rate": 100.0})
        assert quotas.record_connection("10.0.0.1", NOW) == 0

    def test_one_fetch_gets_no_more_than_the_windows_allow(self) -> None:
        quotas = ClientQuotas()
        assert quotas.max_in_window("u", "c", NOW) == float("inf")
        quotas.set(quota_entity({"user": "u"}), {"consumer_byte_rate": 100.0})
        assert quotas.max_in_window("u", "c", NOW) == 1000

    def test_idle_addresses_are_forgotten(self) -> None:
        quotas = ClientQuotas(QuotaWindows(2, 1000))
        quotas.set(quota_entity({"ip": None}), {"connection_creation_rate": 1.0})
        for number in range(30_000):
            quotas.record_connection(f"address-{number}", NOW + number)
        assert len(quotas.connections._usages) <= 10_000

    def test_a_new_client_does_not_scan_all_active_ones(self) -> None:
        quotas = ClientQuotas(QuotaWindows(2, 1_000_000))
        quotas.set(quota_entity({"client-id": None}), {"producer_byte_rate": 1.0})
        for number in range(20_000):
            quotas.use(quotas.produced, "user", f"client-{number}", 1, NOW)
        before = quotas.produced._usages
        quotas.use(quotas.produced, "user", "another", 1, NOW)
        after = quotas.produced._usages
        quotas.use(quotas.produced, "user", "and another", 1, NOW)
        assert quotas.produced._usages is after or before is after
