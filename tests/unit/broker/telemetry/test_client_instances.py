"""Subscriptions of clients, and when clients may ask and push again."""

from itertools import count
from typing import Any

import pytest
from immutables import Map

from ottla.broker.telemetry import client_instances
from ottla.broker.telemetry.client_instances import ClientInstance, ClientInstances
from ottla.broker.telemetry.subscriptions import INTERVAL_MS
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)

START_MS = 1_700_000_000_000
ME = {"client_id": "me", "client_software_name": "librdkafka", "client_source_port": None}
MY_ID = bytes(range(16))


class World:
    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.now_ms = START_MS
        self.ids = (number.to_bytes(16, "big") for number in count(100))
        self.instances = ClientInstances(lambda: next(self.ids))
        self.set(**subscriptions)

    def set(self, **subscriptions: dict[str, str]) -> None:
        configs = {
            ConfigResource(ResourceType.CLIENT_METRICS, name): Map(value) for name, value in subscriptions.items()
        }
        self.image = Image(configs=Map(configs))

    def ask(self, instance_id: bytes = MY_ID, connection: str = "c", **more: str) -> ClientInstance:
        return self.instances.get_for_subscription(instance_id, {**ME, **more}, connection, self.image, self.now_ms)

    def push(
        self,
        instance: ClientInstance,
        *,
        codec: int = 0,
        size: int = 1,
        subscription: int | None = None,
        last: bool = False,
    ) -> ClientInstance:
        current = self.instances.get_for_push(instance.id, ME, "c", self.image, self.now_ms)
        number = current.subscription_id if subscription is None else subscription
        try:
            current.check_push(number, codec, size, self.now_ms, is_last=last, max_bytes=1000)
            current.error = None
        except ApiError as error:
            current.error = type(error)
            raise
        finally:
            current.is_terminating = last
        return current


def test_a_client_that_matches_no_subscription_pushes_nothing() -> None:
    world = World(s={"metrics": "a,b", "interval.ms": "1000", "match": "client_id=you"})
    current = world.ask()
    assert current.requested.metrics == ()
    assert current.requested.interval_ms == INTERVAL_MS


def test_matching_subscriptions_are_combined() -> None:
    world = World(
        one={"metrics": "a, b", "interval.ms": "2000", "match": "client_id=m.*,client_software_name=librd.*"},
        two={"metrics": "b,c", "interval.ms": "1000"},
        three={"metrics": "*", "match": "client_source_port=1.*"},
        four={"metrics": "x", "match": "client_id=[m"},
    )
    assert world.ask().requested == (("a", "b", "c"), 1000)
    assert world.ask(bytes(15) + b"9", client_source_port="1234").requested.metrics == ("*",)


def test_a_client_without_an_id_gets_one() -> None:
    world = World()
    assert world.ask(bytes(16)).id != world.ask(bytes(16), "d").id
    with pytest.raises(InvalidRequest):
        world.instances.get_for_push(bytes(16), ME, "c", world.image, world.now_ms)
    with pytest.raises(InvalidRequest):
        world.instances.get_for_push(bytes(15) + b"\x01", ME, "c", world.image, world.now_ms)


def test_requests_before_the_interval_is_over_are_throttled() -> None:
    world = World(s={"metrics": "*", "interval.ms": "1000"})
    me = world.ask()
    with pytest.raises(ThrottlingQuotaExceeded):
        world.ask()
    world.now_ms += 10
    world.push(me)  # the first push after a subscription may be early
    with pytest.raises(ThrottlingQuotaExceeded):
        world.push(me)
    world.now_ms += 1000
    world.push(me)
    world.now_ms += 999
    with pytest.raises(ThrottlingQuotaExceeded):
        world.push(me)
    world.push(me, last=True)
    world.now_ms += 5000
    with pytest.raises(InvalidRequest):
        world.push(me)


def test_a_push_is_checked_in_kafkas_order() -> None:
    world = World(s={"metrics": "*", "interval.ms": "1000"})
    me = world.ask()
    wrong: list[tuple[dict[str, Any], type[ApiError]]] = [
        ({"subscription": me.subscription_id + 1, "codec": 9, "size": 2000}, UnknownSubscriptionId),
        ({"codec": 9, "size": 2000}, UnsupportedCompressionType),
        ({"size": 2000}, TelemetryTooLarge),
    ]
    for fields, error in wrong:
        world.now_ms += 1000
        with pytest.raises(error):
            world.push(me, **fields)
        if error is not TelemetryTooLarge:
            world.ask()  # after this error the client may ask at once
    with pytest.raises(ThrottlingQuotaExceeded):
        world.ask()


def test_changed_subscriptions_get_a_new_id() -> None:
    world = World(s={"metrics": "a"})
    me = world.ask()
    world.set(s={"metrics": "b"})
    with pytest.raises(UnknownSubscriptionId):
        world.push(me, subscription=me.subscription_id)
    again = world.ask()
    assert again.requested.metrics == ("b",)
    assert again.subscription_id != me.subscription_id


def test_an_instance_is_dropped_on_disconnect_on_expiry_and_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    me = world.ask()
    world.instances.forget("c")
    world.instances.forget("nobody")
    assert world.ask() is not me
    world.now_ms += 3 * INTERVAL_MS
    assert world.ask() is not me
    monkeypatch.setattr(client_instances, "MAX_INSTANCES", 5)
    for number in range(20):
        world.ask(bytes(16), f"c{number}")
    assert len(world.instances) == 5
