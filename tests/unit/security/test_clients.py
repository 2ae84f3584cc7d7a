"""Clients of all kinds authenticate over TLS and SASL, write and read."""

import asyncio
import os
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.helpers import create_ssl_context
from bench.harness.kafka_jars import java, kafka_libs
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.config.settings.properties import show_properties
from tests.unit.security.raw_connection import encoded
from tests.unit.security.secured_node import MECHANISMS, PASSWORDS, SecuredNode

WAYS = [("SSL", "")] + [
    (listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS
]
TIMEOUT_S = 60


def librdkafka(node: SecuredNode, listener: str, mechanism: str = "", user: str = "bob") -> dict[str, Any]:
    """Return the settings of a librdkafka client."""
    given: dict[str, Any] = {
        "bootstrap.servers": node.addresses[listener],
        "security.protocol": listener,
        "log_level": 0,
    }
    if listener.endswith("SSL"):
        given["ssl.ca.location"] = str(node.authority.trusted)
    if mechanism == "OAUTHBEARER":
        given |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (unsigned_token(user), time.time() + 3600)}
    elif mechanism:
        given |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORDS[user]}
    return given


def unsigned_token(user: str) -> str:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now - 1, "exp": now + 3600})
    return ".".join(map(encoded, parts)) + "."


def new_topic(node: SecuredNode, partitions: int = 1) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": node.addresses["PLAINTEXT"], "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    return name


def read(settings: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**settings, "group.id": uuid.uuid4().hex, "fetch.queue.backoff.ms": 1})
    consumer.assign([Place(topic, 0, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                values.append(message.value())
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_librdkafka_writes_and_reads(ottla_node: SecuredNode, listener: str, mechanism: str) -> None:
    """Records of all sizes: large requests and responses span many TLS records, and small ones share one."""
    topic = new_topic(ottla_node)
    settings = librdkafka(ottla_node, listener, mechanism)
    values = [os.urandom(size) for size in (0, 1, 100, 16_384, 900_000) * 6] + [
        b"%d" % number for number in range(20_000)
    ]
    producer = Producer({**settings, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert read(settings, topic, len(values)) == values


def test_records_are_readable_on_every_listener(ottla_node: SecuredNode) -> None:
    topic = new_topic(ottla_node)
    for number, (listener, mechanism) in enumerate(WAYS):
        producer = Producer(librdkafka(ottla_node, listener, mechanism))
        producer.produce(topic, b"%d" % number)
        assert producer.flush(TIMEOUT_S) == 0
    plain = {"bootstrap.servers": ottla_node.addresses["PLAINTEXT"]}
    assert read(plain, topic, len(WAYS)) == [b"%d" % number for number in range(len(WAYS))]


def test_a_slow_reader_gets_all_records(ottla_node: SecuredNode) -> None:
    """The node's socket buffers are full while the client pauses: encrypted bytes must not be lost."""
    topic = new_topic(ottla_node)
    settings = librdkafka(ottla_node, "SASL_SSL", "PLAIN")
    values = [os.urandom(50_000) for _ in range(400)]
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": "slow", "queued.min.messages": 1, "socket.receive.buffer.bytes": 4096})
    consumer.assign([Place(topic, 0, 0)])
    received: list[bytes | None] = []
    while len(received) < len(values):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        received.append(message.value())
        if len(received) % 50 == 0:
            time.sleep(0.2)
    consumer.close()
    assert received == values


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN")]
)
def test_aiokafka_writes_and_reads(ottla_node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = new_topic(ottla_node)
    given: dict[str, Any] = {
        "bootstrap_servers": ottla_node.addresses[listener],
        "security_protocol": listener,
        "ssl_context": create_ssl_context(cafile=str(ottla_node.authority.trusted)) if "SSL" in listener else None,
    }
    if mechanism:
        given |= {"sasl_mechanism": mechanism, "sasl_plain_username": "bob", "sasl_plain_password": PASSWORDS["bob"]}

    async def round_trip() -> bytes | None:
        async with AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait(topic, b"value")
        consumer = AIOKafkaConsumer(**given)
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            await consumer.seek_to_beginning()
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            value: bytes | None = message.value
            return value

    assert asyncio.run(round_trip()) == b"value"


def tool(name: str, *arguments: str, typed: str = "") -> str:
    """Run one of Kafka's tools and return its output."""
    command = [str(java()), "-cp", f"{kafka_libs()}/*", name, *arguments]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config_file(folder: Path, given: dict[str, str]) -> str:
    file = folder / "client.properties"
    file.write_text(show_properties(given))
    return str(file)


@pytest.mark.parametrize(("listener", "mechanism"), [("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "OAUTHBEARER")])
def test_kafkas_own_clients_write_and_read(
    ottla_node: SecuredNode, tmp_path: Path, listener: str, mechanism: str
) -> None:
    topic = new_topic(ottla_node)
    given = ottla_node.client(listener, mechanism)
    file = config_file(tmp_path, given)
    where = ("--bootstrap-server", given["bootstrap.servers"], "--topic", topic)
    tool("org.apache.kafka.tools.ConsoleProducer", *where, "--command-config", file, typed="one\ntwo\n")
    output = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *where,
        *("--command-config", file, "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"),
    )
    assert output.split() == ["one", "two"]


def test_users_created_by_kafkas_tool_can_authenticate(ottla_node: SecuredNode, tmp_path: Path) -> None:
    file = config_file(tmp_path, ottla_node.client("SASL_SSL", "PLAIN"))
    server = ("--bootstrap-server", ottla_node.addresses["SASL_SSL"], "--command-config", file)
    user = ("--entity-type", "users", "--entity-name", "carl")
    configs = "kafka.admin.ConfigCommand"
    tool(configs, *server, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=carls-secret]")
    settings = librdkafka(ottla_node, "SASL_PLAINTEXT", "SCRAM-SHA-512") | {
        "sasl.username": "carl",
        "sasl.password": "carls-secret",
    }
    assert AdminClient(settings).list_topics(timeout=TIMEOUT_S).brokers
    tool(configs, *server, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=3)


def test_the_listener_determines_the_principal(node: SecuredNode) -> None:
    client = node.authority.sign("CN=Carl Gauß\\, jr.,OU=data,O=shop,C=DE")
    path = node.authority.file("carl", client)
    carl = librdkafka(node, "SSL") | {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    assert is_known_as(node, carl, "User:CN=Carl Gauß\\, jr.,OU=data,O=shop,C=DE")
    assert not is_known_as(node, carl, "User:CN=Carl Gauß")
    for mechanism in MECHANISMS:
        assert is_known_as(node, librdkafka(node, "SASL_SSL", mechanism), "User:bob")
    assert not is_known_as(node, librdkafka(node, "SASL_PLAINTEXT", "PLAIN", "ann"), "User:bob")


def is_known_as(node: SecuredNode, settings: dict[str, Any], principal: str) -> bool:
    """Return whether a client can describe a topic that only this principal may describe."""
    topic = new_topic(node)
    admin = AdminClient({"bootstrap.servers": node.addresses["PLAINTEXT"], "log_level": 0})
    kinds = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*kinds, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for future in admin.create_acls([rule]).values():
        future.result(TIMEOUT_S)
    description = AdminClient(settings).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return description.error is None


def test_librdkafka_reports_a_wrong_password(ottla_node: SecuredNode) -> None:
    problems: list[KafkaError] = []
    settings = librdkafka(ottla_node, "SASL_SSL", "PLAIN") | {"sasl.password": "wrong", "error_cb": problems.append}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert KafkaError._AUTHENTICATION in {problem.code() for problem in problems}
