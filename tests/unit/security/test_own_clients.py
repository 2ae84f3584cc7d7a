"""Ottla's clients talk to Apache Kafka and to Ottla over every security protocol."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from bench.harness.certificates import PASSWORD
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.client.addresses import parse_addresses
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.config.settings.properties import show_properties
from ottla.protocol.errors import ApiError, AuthenticationError, NetworkFailed
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.security.settings import parse_security
from ottla.spark.connector.broker_connection import BrokerConnection
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.micro_batch_reader import plan_batch, read_range
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.read_options import parse_read_options
from tests.support.commands import run_command, run_failing_command, run_ottla
from tests.unit.security.secured_node import BRIEF_MS, MECHANISMS, SecuredNode, login, login_of

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
VALUES = pa.schema([("value", TYPES["value"])])


@pytest.fixture(scope="session")
def topic(node: SecuredNode) -> str:
    """A topic with three records."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    plain: dict[str, str | int | float | bool] = {"bootstrap.servers": node.addresses["PLAINTEXT"], "log_level": 0}
    admin = AdminClient(plain)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer = Producer(plain)
    for number in range(3):
        producer.produce(name, b"%d" % number)
    assert producer.flush(30) == 0
    return name


def names_of_topics(given: dict[str, str]) -> set[str]:
    """List the topics with these settings."""

    async def ask() -> set[str]:
        async with Cluster(given["bootstrap.servers"], security=parse_security(given), timeout_s=5) as cluster:
            return {topic.name for topic in await cluster.topics()}

    return asyncio.run(ask())


def read(given: dict[str, str], topic: str) -> list[bytes]:
    """Return the values that a Spark query reads."""
    options = {f"kafka.{name}": value for name, value in given.items()} | {"subscribe": topic}
    parsed = parse_read_options(options, streaming=False)
    batches = [batch for wanted in plan_batch(parsed) for batch in read_range(parsed, wanted, VALUES)]
    return [row["value"] for row in pa.Table.from_batches(batches, VALUES).to_pylist()]


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SSL", ""), *((listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS)],
)
def test_a_client_authenticates_and_reads(node: SecuredNode, topic: str, listener: str, mechanism: str) -> None:
    given = node.client(listener, mechanism)
    assert topic in names_of_topics(given)
    assert read(given, topic) == [b"0", b"1", b"2"]


def test_a_password_may_have_any_characters(node: SecuredNode, topic: str) -> None:
    assert topic in names_of_topics(node.client("SASL_PLAINTEXT", "PLAIN", "ann"))


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool_are_accepted(node: SecuredNode, topic: str, kind: str) -> None:
    authority = node.authority
    stores = {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(authority.key_store("client", authority.sign("CN=client"), kind)),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(authority.trust_store(kind)),
        "ssl.truststore.password": PASSWORD,
    }
    assert read(node.client("SSL") | stores, topic) == [b"0", b"1", b"2"]


def test_certificates_may_be_inline_in_the_settings(node: SecuredNode, topic: str) -> None:
    client = node.authority.sign("CN=client")
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": client.key_pem("secret"),
        "ssl.keystore.certificate.chain": client.certificate_pem,
        "ssl.key.password": "secret",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": node.authority.identity.certificate_pem,
    }
    given = {name: value for name, value in node.client("SSL").items() if not name.startswith("ssl.")}
    assert read(given | inline, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported(node: SecuredNode, mechanism: str) -> None:
    given = node.client("SASL_SSL", mechanism, sasl__jaas__config=login_of(mechanism, "bob", "wrong"))
    with pytest.raises(AuthenticationError, match=r"rejected the credentials: Authentication failed") as raised:
        names_of_topics(given)
    assert "wrong" not in str(raised.value)


def test_an_unsupported_mechanism_is_reported(node: SecuredNode) -> None:
    with pytest.raises(AuthenticationError, match=r"does not support sasl\.mechanism=SCRAM-SHA-512; set it to .*PLAIN"):
        names_of_topics(node.client("BRIEF", "SCRAM-SHA-512"))


def test_a_rejected_token_is_reported(node: SecuredNode) -> None:
    expired = login(
        "oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="bob", unsecuredLoginLifetimeSeconds="-10"
    )
    with pytest.raises(AuthenticationError, match="invalid_token"):
        names_of_topics(node.client("SASL_PLAINTEXT", "OAUTHBEARER", sasl__jaas__config=expired))


@contextmanager
def token_endpoint(token: str, asked: list[tuple[str, str, str]]) -> Iterator[str]:
    """A server that returns this token to every request, and records the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], self.headers["Content-Type"], body))
            answer = json.dumps({"access_token": token, "token_type": "bearer"}).encode()
            self.send_response(200 if token else 401)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def issued(url: str, **options: str) -> dict[str, str]:
    return {
        "sasl.jaas.config": login(
            "oauthbearer.OAuthBearerLoginModule", clientId="ann", clientSecret="x:y", scope="a b", **options
        ),
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def test_a_token_is_requested_once(node: SecuredNode, topic: str) -> None:
    sasl = parse_security(node.client("SASL_PLAINTEXT", "OAUTHBEARER")).sasl
    assert sasl is not None
    token = sasl.exchange().first().split(b"Bearer ")[1].split(b"\x01")[0].decode()
    asked: list[tuple[str, str, str]] = []
    with token_endpoint(token, asked) as url:
        given = node.client("SASL_PLAINTEXT", "OAUTHBEARER") | issued(url)
        assert topic in names_of_topics(given)
        assert read(given, topic) == [b"0", b"1", b"2"]
    ((basic, form, body),) = asked
    assert basic == "Basic YW5uOng6eQ=="
    assert form == "application/x-www-form-urlencoded"
    assert body == "grant_type=client_credentials&scope=a+b"


def test_a_token_may_be_in_a_file(node: SecuredNode, topic: str, tmp_path: Path) -> None:
    sasl = parse_security(node.client("SASL_PLAINTEXT", "OAUTHBEARER")).sasl
    assert sasl is not None
    file = tmp_path / "a token"
    file.write_bytes(sasl.exchange().first().split(b"Bearer ")[1].split(b"\x01")[0] + b"\n")
    given = node.client("SASL_PLAINTEXT", "OAUTHBEARER") | issued(file.as_uri())
    assert topic in names_of_topics(given)
    missing = node.client("SASL_PLAINTEXT", "OAUTHBEARER") | issued((tmp_path / "none").as_uri())
    with pytest.raises(AuthenticationError, match="none cannot be read: No such file"):
        names_of_topics(missing)


def test_an_endpoint_without_tokens_is_reported(node: SecuredNode) -> None:
    with token_endpoint("", []) as url:
        given = node.client("SASL_PLAINTEXT", "OAUTHBEARER") | issued(url)
        with pytest.raises(AuthenticationError, match=f"{url} returned no token: 401"):
            names_of_topics(given)
    with pytest.raises(AuthenticationError, match=f"{url} returned no token: .*refused"):
        names_of_topics(given | {"sasl.login.read.timeout.ms": "500"})


@pytest.mark.parametrize(
    ("listener", "change", "message"),
    [
        ("SSL", {"ssl.truststore.location": ""}, r"certificate of .* is not trusted: .*ssl\.truststore\.location"),
        ("SSL", {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256"}, "TLS"),
        ("PLAINTEXT", {"security.protocol": "SSL"}, "does not speak TLS: check security.protocol"),
        (
            "SSL",
            {"security.protocol": "PLAINTEXT"},
            r"answered in TLS: check security.protocol|closed the connection",
        ),
    ],
)
def test_mismatched_settings_are_reported(
    node: SecuredNode, listener: str, change: dict[str, str], message: str
) -> None:
    given = node.client(listener) | change
    with pytest.raises(ApiError, match=message):
        names_of_topics(given)
    (address,) = parse_addresses(given["bootstrap.servers"])
    with pytest.raises(NetworkFailed, match=message.replace("closed the connection", "the broker closed it")):
        BrokerConnection.connect(address, "test", 5.0, 5.0, parse_security(given))


def test_a_certificate_of_another_host_is_reported(node: SecuredNode, topic: str) -> None:
    given = node.client("SSL")
    given["bootstrap.servers"] = given["bootstrap.servers"].replace("127.0.0.1", "localhost")
    with pytest.raises(ApiError, match=r"is not trusted: .*ssl\.endpoint\.identification\.algorithm"):
        names_of_topics(given)
    assert topic in names_of_topics(given | {"ssl.endpoint.identification.algorithm": ""})


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_connection_stays_open_beyond_its_session(node: SecuredNode, mechanism: str) -> None:
    """A node closes connections whose client does not re-authenticate (KIP-368)."""
    given = node.client("BRIEF", mechanism)
    security = parse_security(given)
    (address,) = parse_addresses(given["bootstrap.servers"])
    request = MetadataRequest(topics=[])
    until = time.monotonic() + 2.5 * BRIEF_MS / 1000

    async def ask_many() -> None:
        connection = await Connection.connect(*address, security=security)
        try:
            while time.monotonic() < until:
                await asyncio.gather(*(connection.send(request, timeout_s=5) for _ in range(5)))
                await asyncio.sleep(0.1)
        finally:
            connection.close()

    def ask_one_by_one() -> None:
        link = BrokerConnection.connect(address, "test", 5.0, 5.0, security)
        while time.monotonic() < until:
            link.send(request, link.version_of(ApiKey.METADATA))
            link.receive()
            time.sleep(0.2)
        link.close()

    async def ask_both_ways() -> None:
        await asyncio.gather(ask_many(), asyncio.to_thread(ask_one_by_one))

    asyncio.run(ask_both_ways())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.truststore.location": "/no/such/file"}, "kafka.ssl.truststore.location: /no/such/file cannot be read"),
        ({"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism: GSSAPI is not supported"),
    ],
)
def test_errors_name_the_options_of_spark(node: SecuredNode, change: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(node.client("SASL_SSL") | change, "orders")


def config_file(folder: Path, given: dict[str, str]) -> str:
    file = folder / "client.properties"
    file.write_text(show_properties(given))
    return str(file)


def test_commands_take_the_settings_of_kafkas_tools(node: SecuredNode, topic: str, tmp_path: Path) -> None:
    given = node.client("SASL_SSL", "SCRAM-SHA-512")
    server = given["bootstrap.servers"]

    def with_settings(settings: dict[str, str]) -> tuple[str, ...]:
        return ("topic", "list", "--command-config", config_file(tmp_path, settings))

    assert topic in run_command(*with_settings(given), server=server)
    refused = run_failing_command("topic", "list", server=server)
    assert "check security.protocol" in refused or "closed the connection" in refused
    done = run_ottla(*with_settings(given | {"sasl.jaas.config": login_of("PLAIN", "bob")}), server=server)
    assert (done.returncode, "PlainLoginModule does not support SCRAM-SHA-512" in done.stderr) == (2, True)
    wrong = given | {"sasl.jaas.config": login_of("SCRAM-SHA-512", "bob", "wrong")}
    output = run_failing_command(*with_settings(wrong), server=server)
    assert "rejected the credentials" in output
    assert "give your credentials with --command-config FILE" in output
    done = run_ottla("topic", "list", "--command-config", str(tmp_path / "none"), server=server)
    assert (done.returncode, "none cannot be read: No such file" in done.stderr) == (2, True)


def test_tables_store_no_passwords(node: SecuredNode, topic: str, tmp_path: Path) -> None:
    given = node.client("SASL_SSL")
    server = given.pop("bootstrap.servers")
    file = config_file(tmp_path, given)
    home = ("--home", str(tmp_path / "home"))
    run_command("table", "create", "orders", "--topic", topic, "--command-config", file, *home, server=server)
    (described,) = json.loads(run_command("table", "describe", "orders", "--json", *home, server=server))
    assert described["lag"] == 3
    assert "secret" not in (tmp_path / "home" / "definitions" / "orders.json").read_text()
    Path(file).unlink()
    assert "ottla table alter orders --command-config FILE" in run_failing_command(
        "table", "describe", "orders", *home, server=server
    )
    run_command("table", "alter", "orders", "--command-config", config_file(tmp_path, given), *home, server=server)
