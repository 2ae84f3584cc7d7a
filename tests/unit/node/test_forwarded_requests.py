"""Forwarded requests in the controller's metrics and request log."""

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.harness.ports import free_ports

from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.wire.codec import encode
from tests.support.exposition import Exposition
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_heavy_batches import connect, frame_of, receive
from tests.unit.node.test_node_process import SETTINGS


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    (port,) = free_ports(1)
    transactions = {
        f"transaction.state.log.{name}": "1" for name in ("replication.factor", "min.isr", "num.partitions")
    }
    made = OttlaNode(tmp_path, {**SETTINGS, **transactions, "ottla.metrics.listener": f"127.0.0.1:{port}"})
    made.ports["METRICS"] = port
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def metrics(node: OttlaNode) -> Exposition:
    time.sleep(1.05)  # they are gathered once a second
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['METRICS']}/metrics", timeout=10) as answer:
        return Exposition(answer.read().decode())


def forwarded(request: object, version: int) -> EnvelopeRequest:
    """A client's request in an envelope of a broker."""
    principal = DefaultPrincipal(type="User", name="alice", token_authenticated=False)
    return EnvelopeRequest(
        request_data=frame_of(request, version)[4:],
        request_principal=bytes(2) + encode(principal, 0),
        client_host_address=bytes((10, 0, 0, 7)),
    )


def test_a_forwarded_request_is_counted_under_its_own_name(node: OttlaNode) -> None:
    """On the controller with its times; the envelope around it is not counted, unless it cannot be opened, as in Kafka.

    A broker that is no controller hands on requests so; here the test does, over the controller's listener.
    """
    controller = ("127.0.0.1", node.ports["CONTROLLER"])
    create = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
    with socket.create_connection(controller) as sock:
        for envelope in (
            forwarded(create, 5),
            forwarded(create, 5),
            EnvelopeRequest(client_host_address=b"no address"),
        ):
            sock.sendall(frame_of(envelope, 0))
            receive(sock)
    found = metrics(node)
    prefix = "kafka_network_requestmetrics_"
    assert found[f'{prefix}totaltimems_count{{request="CreateTopics"}}'] == 2
    assert found[f'{prefix}requests_total{{request="CreateTopics",version="5"}}'] == 2
    assert found[f'{prefix}errors_total{{request="CreateTopics",error="TOPIC_ALREADY_EXISTS"}}'] == 1
    for span in ("totaltimems", "localtimems", "remotetimems", "requestbytes", "responsebytes"):
        assert found[f'{prefix}{span}_sum{{request="CreateTopics"}}'] > 0
    assert found[f'{prefix}totaltimems_count{{request="Envelope"}}'] == 1
    assert found[f'{prefix}errors_total{{request="Envelope",error="PRINCIPAL_DESERIALIZATION_FAILURE"}}'] == 1

    change = AlterConfigsResource(
        resource_type=8, resource_name="1", configs=[AlterableConfig(name="kafka.request.logger", value="DEBUG")]
    )
    with connect(node) as sock:
        for request, version in ((IncrementalAlterConfigsRequest(resources=[change]), 1), (CreateTopicsRequest(), 5)):
            sock.sendall(frame_of(request, version))
            receive(sock)
        address = "{}:{}".format(*sock.getsockname()[:2])
    with socket.create_connection(controller) as sock:
        sock.sendall(frame_of(forwarded(create, 5), 0))
        receive(sock)
    time.sleep(0.2)
    lines = [json.loads(line[line.index("{") :]) for line in node.log_path.read_text().splitlines() if '{"isF' in line]
    assert "Envelope" not in {line["requestHeader"]["requestApiKeyName"] for line in lines}
    outside, inside = (line for line in lines if line["requestHeader"]["requestApiKeyName"] == "CreateTopics")
    assert (inside["isForwarded"], outside["isForwarded"]) == (True, False)
    assert (inside["listener"], outside["listener"]) == ("CONTROLLER", "PLAINTEXT")
    assert (inside["principal"], outside["principal"]) == ("User:alice", "User:ANONYMOUS")
    assert inside["client"] == "10.0.0.7"
    for line in (inside, outside):
        assert line["securityProtocol"] == "PLAINTEXT"
        assert line["requestHeader"]["clientId"] == "test"
        assert line["clientInformation"].keys() == {"softwareName", "softwareVersion"}
        assert line["totalTimeMs"] >= line["localTimeMs"] > 0
        assert "topics" in line["request"]
        assert "topics" in line["response"]
    assert re.fullmatch(rf"127.0.0.1:{node.ports['PLAINTEXT']}-{re.escape(address)}-0-[0-9]+", outside["connection"])
    assert re.fullmatch(r"[0-9.]+:[0-9]+-[0-9.]+:[0-9]+-0-[0-9]+", inside["connection"])
    assert inside["connection"] != outside["connection"]
