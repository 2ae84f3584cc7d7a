"""Real clients push their metrics (KIP-714): Java's and librdkafka's, asked for by Kafka's own tool, shown by Ottla."""

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
        (made,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        made.result(TIMEOUT_S)
        yield node, read


def tool(node: OttlaNode, name: str, *arguments: str) -> list[str]:
    return [str(java()), *JVM, "-cp", class_path(), name, "--bootstrap-server", node.address, *arguments]


def until(done: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


@pytest.mark.timeout(200)
def test_clients_are_asked_and_their_metrics_are_shown(page: tuple[OttlaNode, Callable[[], str]]) -> None:
    node, read = page
    subscribe = tool(
        node,
        "org.apache.kafka.tools.ClientMetricsCommand",
        *("--alter", "--name", "all", "--metrics", "org.apache.kafka.producer", "--interval", "200"),
    )
    done = subprocess.run(subscribe, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    producer = Producer({"bootstrap.servers": node.address, "client.id": "from-librdkafka"})
    command = tool(
        node,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--topic", "t", "--command-property", "client.id=from-java"),
    )
    console = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert console.stdin is not None
    try:

        def seen() -> bool:
            assert console.stdin is not None
            console.stdin.write(b"a record\n")
            console.stdin.flush()
            producer.produce("t", b"another")
            producer.poll(0)
            text = read()
            lines = [line for line in text.splitlines() if line.startswith("client_org_apache_kafka_producer_")]
            return all(
                any(f'client_id="{each}"' in line for line in lines) for each in ("from-librdkafka", "from-java")
            )

        until(seen, read)
        until(lambda: "client_org_apache_kafka_producer_record_send_total{" in read(), read)
    finally:
        console.kill()
        console.wait(TIMEOUT_S)
        with suppress(BrokenPipeError):
            console.stdin.close()
        producer.flush(TIMEOUT_S)
    assert "ottla_client_telemetry_refused_total 0" in read()
