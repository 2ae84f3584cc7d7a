"""A node with a listener for each security protocol, and the settings of their clients.

Its listeners: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, and BRIEF, which is SASL_PLAINTEXT with short sessions.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.certificates import Authority

from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

PASSWORDS = {"ann": 'ann\'s "secret", with = and ,', "bob": "bob's secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", "BRIEF")
SASL = ("SASL_PLAINTEXT", "SASL_SSL", "BRIEF")
BRIEF_MS = 2_000
"""Kafka rejects a re-authentication within one second, as the KIP says."""
_PACKAGE = "org.apache.kafka.common.security"
_quoted = str.maketrans({'"': '\\"', "\\": "\\\\"})


def login(module: str, **options: str) -> str:
    """Return a text for `sasl.jaas.config`."""
    pairs = "".join(f' {name}="{value.translate(_quoted)}"' for name, value in options.items())
    return f"{_PACKAGE}.{module} required{pairs};"


def login_of(mechanism: str, user: str, password: str | None = None) -> str:
    """Return the `sasl.jaas.config` of a client."""
    if mechanism == "OAUTHBEARER":
        return login("oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub=user)
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return login(module, username=user, password=PASSWORDS[user] if password is None else password)


def _server_logins() -> dict[str, str]:
    users = {f"user_{name}": password for name, password in PASSWORDS.items()}
    texts = {"plain": login("plain.PlainLoginModule", **users)}
    texts |= {mechanism.lower(): login("scram.ScramLoginModule") for mechanism in SCRAM}
    texts["oauthbearer"] = login("oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="server")
    return {
        f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config": text
        for listener in SASL
        for mechanism, text in texts.items()
    }


def server_settings(authority: Authority) -> dict[str, str]:
    """Return the settings of the node without addresses and folders."""
    server = authority.sign("CN=server,O=shop", "127.0.0.1")
    protocols = {name: "SASL_PLAINTEXT" if name == "BRIEF" else name for name in ("PLAINTEXT", *SECURED)}
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items())
        + ",CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.brief.sasl.enabled.mechanisms": ",".join(
            mechanism for mechanism in MECHANISMS if mechanism != "SCRAM-SHA-512"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.file("server", server)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted),
        "ssl.client.auth": "requested",
        "delegation.token.secret.key": "what all nodes share",
        **{
            f"listener.name.brief.{mechanism.lower()}.connections.max.reauth.ms": str(BRIEF_MS)
            for mechanism in MECHANISMS
        },
        # A line of a properties file is a string to Java: a backslash is written twice.
        **{name: text.replace("\\", "\\\\") for name, text in _server_logins().items()},
    }


def scram_arguments() -> list[str]:
    """Return the format options. `--add-scram` does not allow commas in passwords, so bob is the only user."""
    return [
        argument
        for mechanism in SCRAM
        for argument in ("--add-scram", f"{mechanism}=[name=bob,password={PASSWORDS['bob']}]")
    ]


@dataclass(frozen=True)
class SecuredNode:
    """A running node, with its addresses and client settings."""

    addresses: Mapping[str, str]
    authority: Authority

    def client(self, listener: str, mechanism: str = "PLAIN", user: str = "bob", **more: str) -> dict[str, str]:
        """Return the settings of a client of a listener. Two underscores stand for a dot."""
        given = {"bootstrap.servers": self.addresses[listener], "security.protocol": _protocol(listener)}
        if listener.endswith("SSL"):
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.trusted)}
        if listener in SASL:
            given |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login_of(mechanism, user)}
        return given | {name.replace("__", "."): value for name, value in more.items()}


def _protocol(listener: str) -> str:
    return "SASL_PLAINTEXT" if listener == "BRIEF" else listener


@contextmanager
def secured_node(kind: str, folder: Path) -> Iterator[SecuredNode]:
    """Run such a node of Apache Kafka or of Ottla."""
    authority = Authority(folder)
    settings = {**SETTINGS, **server_settings(authority)}
    node: KafkaNode | OttlaNode = (KafkaNode if kind == "kafka" else OttlaNode)(folder, settings, SECURED)
    node.format(*scram_arguments())
    with node.running():
        yield SecuredNode({name: f"127.0.0.1:{port}" for name, port in node.ports.items()}, authority)
