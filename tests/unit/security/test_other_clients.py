"""Clients in Go and JavaScript authenticate over TLS and SASL, write, read and join groups."""

import time
import uuid
from collections.abc import Iterator

import pytest

from tests.conformance.clients.programs.lines import Record
from tests.conformance.clients.running import FRANZ_GO, KAFKAJS, SARAMA, Client, ClientFailed, RunningClient
from tests.unit.security.secured_node import PASSWORDS, SecuredNode
from tests.unit.security.test_clients import new_topic

CLIENTS = (FRANZ_GO, SARAMA, KAFKAJS)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [("SSL", "")] + [
    (listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS
]
RECORDS = tuple(Record(0, b"%d" % number, b"value %d" % number) for number in range(50))


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Iterator[RunningClient]:
    kind: Client = request.param
    with kind.running() as running:
        yield running


def of_kinds(*kinds: Client) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", kinds, indirect=True, ids=lambda kind: kind.name)


def client_settings(
    node: SecuredNode, listener: str, mechanism: str, password: str = PASSWORDS["bob"]
) -> dict[str, str]:
    return {
        "address": node.addresses[listener],
        "trusted": str(node.authority.trusted) if listener.endswith("SSL") else "",
        "mechanism": mechanism,
        "user": "bob",
        "password": password,
    }


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_what_is_written_is_read(client: RunningClient, ottla_node: SecuredNode, listener: str, mechanism: str) -> None:
    topic, way = new_topic(ottla_node), client_settings(ottla_node, listener, mechanism)
    client.ask("write", topic=topic, records=RECORDS, **way)
    read = client.ask("read", topic=topic, partitions=1, count=len(RECORDS), **way)
    assert read.records == RECORDS


def test_a_group_is_joined(client: RunningClient, ottla_node: SecuredNode) -> None:
    topic, way = new_topic(ottla_node), client_settings(ottla_node, "SASL_SSL", "SCRAM-SHA-256")
    client.ask("write", topic=topic, records=RECORDS, **way)
    client.ask("join", topic=topic, group=uuid.uuid4().hex, **way)
    read: list[Record] = []
    deadline = time.monotonic() + 60
    while len(read) < len(RECORDS) and time.monotonic() < deadline:
        read += client.ask("poll", timeout_ms=500, **way).records
    client.ask("commit", **way)
    client.ask("leave", **way)
    assert tuple(read) == RECORDS


@of_kinds(FRANZ_GO, SARAMA)
def test_a_session_is_reauthenticated(client: RunningClient, ottla_node: SecuredNode) -> None:
    """It lasts for two seconds there; a member reads for longer than that.

    kafkajs proves it again ten seconds before the end, which is too often for Kafka, too.
    """
    topic, way = new_topic(ottla_node), client_settings(ottla_node, "BRIEF", "SCRAM-SHA-256")
    client.ask("write", topic=topic, records=RECORDS, **way)
    client.ask("join", topic=topic, group=uuid.uuid4().hex, **way)
    read: list[Record] = []
    began = time.monotonic()
    while time.monotonic() < began + 5:
        read += client.ask("poll", timeout_ms=500, **way).records
    client.ask("write", topic=topic, records=RECORDS, **way)
    while len(read) < 2 * len(RECORDS) and time.monotonic() < began + 60:
        read += client.ask("poll", timeout_ms=500, **way).records
    client.ask("leave", **way)
    assert {*read} == {*RECORDS}
    assert len(read) == 2 * len(RECORDS)


@of_kinds(SARAMA, KAFKAJS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_reported(client: RunningClient, ottla_node: SecuredNode, mechanism: str) -> None:
    """franz-go tries again until its time is up."""
    way = client_settings(ottla_node, "SASL_SSL", mechanism, "wrong")
    with pytest.raises(ClientFailed, match=r"(?i)authenticat|credentials"):
        client.ask("write", topic=new_topic(ottla_node), records=RECORDS[:1], **way)
