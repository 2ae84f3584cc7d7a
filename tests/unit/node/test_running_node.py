"""Dynamic settings and automatic topic creation on a running node, with unmodified clients."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.rpc.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.differential.harness import ask_alone
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS

TIMEOUT_S = 20.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path, {**SETTINGS, "num.partitions": "3"})
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def set_on(node: OttlaNode, kind: int, name: str, setting: str, value: str | None) -> None:
    change = AlterableConfig(name=setting, config_operation=1 if value is None else 0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    response = ask_alone(node, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response


def described(node: OttlaNode, kind: int, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    response = ask_alone(node, DescribeConfigsRequest(resources=[resource]), 4)
    return {each.name: each.value for each in response.results[0].configs}


def produce(node: OttlaNode, topic: str, size: int) -> KafkaError | None:
    """Send one message of a size, and return the error if there is one."""
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.address, "message.max.bytes": 4_000_000, "retries": 0})
    producer.produce(topic, b"x" * size, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = outcome
    return error


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_max_message_bytes_can_be_set_for_all_topics_or_one(node: OttlaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    for future in admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)]).values():
        future.result(TIMEOUT_S)
    assert produce(node, "a", 5000) is None
    set_on(node, ResourceType.BROKER, "", "message.max.bytes", "1000")
    set_on(node, ResourceType.TOPIC, "b", "max.message.bytes", "10000")
    error = produce(node, "a", 5000)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(node, "b", 5000) is None
    set_on(node, ResourceType.BROKER, "", "message.max.bytes", None)
    assert produce(node, "a", 5000) is None


def test_dynamic_settings_survive_a_restart(node: OttlaNode) -> None:
    set_on(node, ResourceType.BROKER, "1", "num.io.threads", "16")
    set_on(node, ResourceType.BROKER, "", "log.retention.ms", "123456")
    node.stop()
    node.start()
    values = described(node, ResourceType.BROKER, "1")
    assert (values["num.io.threads"], values["log.retention.ms"]) == ("16", "123456")


def test_a_changed_connection_limit_is_enforced(node: OttlaNode) -> None:
    set_on(node, ResourceType.BROKER, "", "max.connections.per.ip", "2")
    host, port = node.address.split(":")
    opened = [socket.create_connection((host, int(port)), 5) for _ in range(6)]
    for each in opened:
        each.settimeout(5)

    def closed() -> int:
        count = 0
        for each in opened:
            try:
                each.setblocking(False)
                count += each.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionError:
                count += 1
        return count

    wait_until(lambda: closed() >= 4)
    for each in opened:
        each.close()


def test_producing_creates_a_topic(node: OttlaNode) -> None:
    assert produce(node, "fresh", 10) is None
    found = AdminClient({"bootstrap.servers": node.address}).list_topics("fresh", TIMEOUT_S)
    assert len(found.topics["fresh"].partitions) == 3


def test_consuming_creates_a_topic_if_the_client_allows_it(node: OttlaNode) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": node.address,
            "group.id": "g",
            "allow.auto.create.topics": True,
            "topic.metadata.refresh.interval.ms": 100,
        }
    )
    try:
        wait_until(lambda: consumer.list_topics("wanted", TIMEOUT_S).topics["wanted"].partitions)
    finally:
        consumer.close()
