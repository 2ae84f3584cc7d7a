"""Client telemetry (KIP-714) behaves as Kafka's: the requested metrics, and the order of checks on pushes."""

import time
from collections.abc import Iterator
from itertools import count

import pytest

from ottla.protocol.messages.rpc.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.push_telemetry import PushTelemetryRequest
from ottla.protocol.wire.compression import Compression, compress
from tests.conformance.differential.harness import Answers, NodePair
from tests.unit.broker.telemetry.payloads import gauge, payload, point

CLIENT_METRICS = 16
DELETE = 1
numbers = count(1)
PUSH = payload(gauge("org.apache.kafka.producer.rate", point(1.5)))


def subscribe(both: NodePair, name: str, **settings: str) -> None:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    assert not both.expect_same(IncrementalAlterConfigsRequest(resources=[resource]), 1).ottla.responses[0].error_code


def unsubscribe(both: NodePair, name: str, *settings: str) -> None:
    configs = [AlterableConfig(name=setting.replace("_", "."), config_operation=DELETE) for setting in settings]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    both.expect_same(IncrementalAlterConfigsRequest(resources=[resource]), 1)


class Client:
    """A client instance with its own connection, and the same id on both sides."""

    def __init__(self, both: NodePair) -> None:
        self.both = both
        self.id = (1000 + next(numbers)).to_bytes(16, "big")

    def ask(self, client_id: str = "differential") -> Answers:
        return self.both.expect_same(
            GetTelemetrySubscriptionsRequest(client_instance_id=self.id), 0, client_id=client_id
        )

    def wait_for_subscription(self, *metrics: str, client_id: str = "differential") -> Answers:
        """Ask with new instances until both nodes have noticed the subscriptions, and return the answers."""
        deadline = time.monotonic() + 10
        while True:
            self.id = (1000 + next(numbers)).to_bytes(16, "big")
            request = GetTelemetrySubscriptionsRequest(client_instance_id=self.id)
            answers = self.both.ask(request, 0, client_id=client_id)
            if all(sorted(answer.requested_metrics) == sorted(metrics) for answer in answers):
                return answers
            assert time.monotonic() < deadline, answers

    def push(self, subscription: int, data: bytes = PUSH, codec: int = 0, *, terminating: bool = False) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.id,
            subscription_id=subscription,
            compression_type=codec,
            metrics=data,
            terminating=terminating,
        )
        return int(self.both.expect_same(request, 0).ottla.error_code)


@pytest.fixture
def client(both: NodePair) -> Iterator[Client]:
    both.reconnect()
    client = Client(both)
    yield client
    for name in ("all", "mine"):
        unsubscribe(both, name, "metrics", "interval_ms", "match")
    client.wait_for_subscription()


def test_without_subscriptions_no_metrics_are_requested(both: NodePair, client: Client) -> None:
    client.wait_for_subscription()
    client.ask()  # both answer that it is too early
    both.expect_same(PushTelemetryRequest(), 0)
    both.expect_same(PushTelemetryRequest(client_instance_id=(1).to_bytes(16, "big")), 0)


def test_requested_metrics_depend_on_the_client(both: NodePair, client: Client) -> None:
    subscribe(both, "mine", metrics="org.apache.kafka.producer", interval_ms="1000", match="client_id=telemetry-.*")
    answers = client.wait_for_subscription("org.apache.kafka.producer", client_id="telemetry-1")
    assert not both.differences(answers, 0)
    assert not client.wait_for_subscription(client_id="another").ottla.requested_metrics
    unsubscribe(both, "mine", "metrics", "interval_ms", "match")
    client.wait_for_subscription(client_id="telemetry-1")


def test_pushes_are_accepted_and_refused_the_same_way(both: NodePair, client: Client) -> None:
    subscribe(both, "all", metrics="*", interval_ms="300")
    answers = client.wait_for_subscription("*")
    assert not both.differences(answers, 0)
    subscription = answers.ottla.subscription_id
    assert client.push(subscription) == 0
    assert client.push(subscription) == 89
    assert client.push(subscription + 1) == 89
    time.sleep(0.4)
    assert client.push(subscription + 1) == 117
    client.ask()  # allowed at once after the error
    time.sleep(0.4)
    assert client.push(subscription, codec=9) == 76
    client.ask()
    time.sleep(0.4)
    assert client.push(subscription, bytes(1_048_577)) == 118
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        time.sleep(0.4)
        assert client.push(subscription, compress(codec, PUSH), int(codec)) == 0
    time.sleep(0.4)
    assert client.push(subscription, b"") == 0
    assert client.push(subscription, terminating=True) == 0
    time.sleep(0.4)
    assert client.push(subscription) == 42
    assert client.push(subscription, terminating=True) == 0  # its last push did not terminate
    both.reconnect()
    time.sleep(0.4)
    assert client.push(subscription) == 0  # its state ended with its connection
