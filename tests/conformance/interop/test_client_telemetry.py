"""Java clients and librdkafka push metrics (KIP-714) that Kafka's tool subscribes to, and Ottla exports them."""

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from bench.harness.kafka_jars import class_path, java
from bench.harness.ports import free_port
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[OttlaNode, Callable[[], str]]]:
    port = free_port()
    node = OttlaNode(tmp_path, {**SETTINGS, "ottla.metrics.listener": f"127.0.0.1:{port}"})
    node.format()

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
        return text

    with node.running():
        admin = AdminClient({"bootstrap.servers": node.address})
        (future,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        future.result(TIMEOUT_S)
        yield node, read


def tool_command(node: OttlaNode, name: str, *arguments: str) -> list[str]:
    return [str(java()), *JVM, "-cp", class_path(), name, "--bootstrap-server", node.address, *arguments]


def wait_until(is_done: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


@pytest.mark.timeout(200)
def test_metrics_of_subscribed_clients_are_exported(page: tuple[OttlaNode, Callable[[], str]]) -> None:
    node, read = page
    subscribe = tool_command(
        node,
        "org.apache.kafka.tools.ClientMetricsCommand",
        *("--alter", "--name", "all", "--metrics", "org.apache.kafka.producer", "--interval", "200"),
    )
    finished = subprocess.run(subscribe, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    producer = Producer({"bootstrap.servers": node.address, "client.id": "from-librdkafka"})
    command = tool_command(
        node,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--topic", "t", "--command-property", "client.id=from-java"),
    )
    console = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert console.stdin is not None
    try:

        def are_metrics_exported() -> bool:
            assert console.stdin is not None
            console.stdin.write(b"a record\n")
            console.stdin.flush()
            producer.produce("t", b"another")
            producer.poll(0)
            text = read()
            lines = [line for line in text.splitlines() if line.startswith("client_org_apache_kafka_producer_")]
            return all(
                any(f'client_id="{client_id}"' in line for line in lines)
                for client_id in ("from-librdkafka", "from-java")
            )

        wait_until(are_metrics_exported, read)
        wait_until(lambda: "client_org_apache_kafka_producer_record_send_total{" in read(), read)
    finally:
        console.kill()
        console.wait(TIMEOUT_S)
        with suppress(BrokenPipeError):
            console.stdin.close()
        producer.flush(TIMEOUT_S)
    assert "ottla_client_telemetry_refused_total 0" in read()
