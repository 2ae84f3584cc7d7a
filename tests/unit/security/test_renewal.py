"""Certificates are renewed while a node runs, and a node with invalid security settings does not start."""

import ssl
from pathlib import Path

import pytest
from bench.harness.certificates import Authority, Identity
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ottla.config.settings.properties import show_properties
from ottla.metadata.image.image import Image
from ottla.node.listener_security import ListenerSecurity
from ottla.node.settings_loader import load_settings
from ottla.security.tls import client_context
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_cluster import eventually
from tests.support.ottla_node import NodeFailed, OttlaNode
from tests.unit.security.secured_node import SECURED, SecuredNode, login, secured_node, server_settings


def set_for_listener(node: SecuredNode, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.addresses["PLAINTEXT"], "log_level": 0})
    entry = ConfigEntry(f"listener.name.ssl.{name}", value, incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])]
    ).values():
        future.result(30)


def served_certificate(node: SecuredNode) -> str:
    """Return the certificate that the node serves."""
    host, _, port = node.addresses["SSL"].rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10)


def same(pem: str, identity: Identity) -> bool:
    return ssl.PEM_cert_to_DER_cert(pem) == ssl.PEM_cert_to_DER_cert(identity.certificate_pem)


@pytest.mark.parametrize("kind", ["kafka", "ottla"])
def test_a_certificate_is_renewed_while_a_node_runs(tmp_path: Path, kind: str) -> None:
    with secured_node(kind, tmp_path) as node:
        before = served_certificate(node)
        renewed = node.authority.sign("CN=server,O=shop", "127.0.0.1")
        path = node.authority.file("renewed", renewed)
        set_for_listener(node, "ssl.keystore.type", "PEM")
        set_for_listener(node, "ssl.keystore.location", str(path))
        eventually(lambda: same(served_certificate(node), renewed), "the new certificate is shown")
        with pytest.raises(KafkaException):
            set_for_listener(node, "ssl.keystore.location", str(tmp_path / "none.pem"))
        assert same(served_certificate(node), renewed)
        # The same file with another certificate: setting it again reads it again.
        again = node.authority.sign("CN=server,O=shop", "127.0.0.1")
        node.authority.file("renewed", again)
        assert same(served_certificate(node), renewed)
        set_for_listener(node, "ssl.keystore.location", str(path))
        eventually(lambda: same(served_certificate(node), again), "the file was read again")
        assert not same(before, again)


def test_certificates_for_other_nodes_are_renewed_too(tmp_path: Path) -> None:
    """A new certificate in the same file is also used for connections that the node opens."""
    authority = Authority(tmp_path)
    file = tmp_path / "server.properties"
    values = {**server_settings(authority), "inter.broker.listener.name": "SSL", "log.dirs": str(tmp_path / "logs")}
    listeners = {
        "listeners": "SSL://127.0.0.1:9,CONTROLLER://127.0.0.1:10",
        "controller.quorum.voters": "1@127.0.0.1:10",
    }
    file.write_text(show_properties({**SETTINGS, **values, **listeners}))
    settings = load_settings(file)
    securing = ListenerSecurity(settings, Image, lambda: 0)
    tls = securing.between_brokers().tls
    assert tls is not None
    before = client_context(tls)
    authority.file("server", authority.sign("CN=server,O=shop", "127.0.0.1"))
    assert client_context(tls) is before
    securing.check(settings)
    assert client_context(tls) is not before


PLAIN = "listener.name.sasl_ssl.plain.sasl.jaas.config"
BEARER = "listener.name.sasl_ssl.oauthbearer.sasl"
KEYS = f"{BEARER}.oauthbearer.jwks"
SIGNED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.keystore.location": None}, "ssl.keystore.location: is missing: set it to the key store"),
        ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location: /no/such/file cannot be read"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules: character 1: expected DEFAULT"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms: GSSAPI is not supported"),
        ({PLAIN: None}, f"{PLAIN}: is missing: it has the accepted credentials for PLAIN"),
        ({PLAIN: login("plain.PlainLoginModule")[:-1]}, f"{PLAIN}: it must end with a semicolon"),
        ({"sasl.server.callback.handler.class": "x.Y"}, "sasl.server.callback.handler.class: x.Y is a Java class"),
        (
            {f"{BEARER}.server.callback.handler.class": SIGNED},
            f"{KEYS}.endpoint.url: must be the URL of the signing keys",
        ),
        (
            {
                f"{BEARER}.server.callback.handler.class": SIGNED,
                f"{KEYS}.endpoint.url": "file:/keys",
                f"{KEYS}.endpoint.refresh.ms": "soon",
            },
            f"{KEYS}.endpoint.refresh.ms: must be a number, not 'soon'",
        ),
        (
            {"inter.broker.listener.name": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
            f"{PLAIN}: needs the option username for PlainLoginModule, for SASL_SSL",
        ),
    ],
)
def test_invalid_security_settings_fail_the_start(tmp_path: Path, change: dict[str, str | None], message: str) -> None:
    values = {**SETTINGS, **server_settings(Authority(tmp_path)), **change}
    node = OttlaNode(tmp_path, {name: value for name, value in values.items() if value is not None}, SECURED)
    node.format()
    with pytest.raises(NodeFailed) as raised, node.running():
        pass
    assert message in str(raised.value)
    assert "Traceback" not in str(raised.value)
