"""A node's configuration: the meaning of server.properties, its errors, and the defaults without a file."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.config.defaults import data_directory
from ottla.config.listeners import Address, ConnectionLimits, ListenerEndpoint, SecurityProtocol
from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.topics import ConfigSource, effective_topic_settings
from ottla.config.settings.values import Password
from ottla.node.plugins import STANDARD
from ottla.node.settings_loader import InvalidConfiguration, NodeSettings, ProcessRole, load_settings

PLAIN = SecurityProtocol.PLAINTEXT
FILE = """\
# A node of a cluster of three
process.roles=broker,controller
node.id=3
listeners=PLAINTEXT://:9092,SECURE://[::1]:9094,CONTROLLER://host-3.example:9093
advertised.listeners=PLAINTEXT://public-3.example:19092,SECURE://public-3.example:19094
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@host-1.example:9093,2@[2001:db8::2]:9093,3@host-3.example:9093
broker.rack=rack-b
log.dirs=/data/1 , /data/2
metadata.log.dir=/data/metadata
log.retention.minutes=90
num.io.threads = 4
max.connections.per.ip.overrides=10.0.0.1:5,::1:7
socket.request.max.bytes=2000000
listener.name.secure.ssl.keystore.location=/keys/secure.jks
listener.name.secure.plain.sasl.jaas.config=secret
ssl.keystore.password=hush
"""


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(FILE)
    return path


def load_text(folder: Path, text: str, overrides: Mapping[str, str] | None = None) -> NodeSettings:
    path = folder / "server.properties"
    path.write_text(text)
    return load_settings(path, overrides or {})


def changed(folder: Path, **settings: str) -> NodeSettings:
    """Load the file with overrides; underscores in their names stand for dots."""
    return load_text(folder, FILE, {name.replace("_", "."): value for name, value in settings.items()})


def test_a_file_is_understood(properties: Path) -> None:
    settings = load_settings(properties)
    assert settings.roles == {ProcessRole.BROKER, ProcessRole.CONTROLLER}
    assert settings.node_id == settings["broker.id"] == 3
    assert settings.listeners == (
        ListenerEndpoint("PLAINTEXT", "", 9092, PLAIN),
        ListenerEndpoint("SECURE", "::1", 9094, SecurityProtocol.SASL_SSL),
        ListenerEndpoint("CONTROLLER", "host-3.example", 9093, PLAIN),
    )
    assert [str(each.address) for each in settings.listeners[:2]] == [":9092", "[::1]:9094"]
    assert [each.name for each in settings.controller_listeners] == ["CONTROLLER"]
    assert [str(each.address) for each in settings.advertised] == ["public-3.example:19092", "public-3.example:19094"]
    assert [str(each.address) for each in settings.advertised_controllers] == ["host-3.example:9093"]
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.quorum_voters == {
        1: Address("host-1.example", 9093),
        2: Address("2001:db8::2", 9093),
        3: Address("host-3.example", 9093),
    }
    assert settings.quorum_bootstrap_servers == ()
    assert settings.log_dirs == ("/data/1", "/data/2")
    assert settings.metadata_log_dir == "/data/metadata"
    assert settings.directories == ("/data/1", "/data/2", "/data/metadata")
    assert settings.rack == "rack-b"
    assert settings.retention_ms == 90 * 60_000
    assert settings.num_io_threads == 4
    assert settings.queued_max_requests == 500
    assert settings.fetch_max_bytes == 57_671_680
    assert settings.limits == ConnectionLimits(
        max_request_bytes=2_000_000, max_connections_per_ip_overrides={"10.0.0.1": 5, "::1": 7}
    )
    assert settings.warnings == ()
    assert not settings.is_own_quorum


def test_every_setting_has_a_typed_value(properties: Path) -> None:
    settings = load_settings(properties)
    assert settings["auto.create.topics.enable"] is True
    assert settings["log.cleaner.min.cleanable.ratio"] == 0.5
    assert settings["sasl.enabled.mechanisms"] == ("GSSAPI",)
    assert settings["ssl.keystore.password"] == Password("hush")
    assert settings["log.retention.ms"] is None
    assert settings.flag("log.preallocate") is False
    assert settings.text("compression.type") == "producer"
    with pytest.raises(KeyError):
        settings["no.such.setting"]


def test_given_settings_are_kept_as_text(properties: Path) -> None:
    settings = load_settings(properties, {"num.partitions": " 7 "})
    assert settings.given["log.dirs"] == "/data/1 , /data/2"
    assert settings.given["num.partitions"] == " 7 "
    assert "log.retention.hours" not in settings.given
    assert "broker.id" not in settings.given
    retention = effective_topic_settings(broker=settings.given)["retention.ms"]
    assert (retention.value, retention.source, retention.given_as) == (
        90 * 60_000, ConfigSource.STATIC_BROKER, "log.retention.minutes",
    )  # fmt: skip


def test_listener_settings_are_kept_by_listener(properties: Path) -> None:
    settings = load_settings(properties)
    assert settings.listener_settings == {
        "SECURE": {"ssl.keystore.location": "/keys/secure.jks", "plain.sasl.jaas.config": "secret"}
    }


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 90 * 60_000),
        ({"log.retention.ms": "5"}, 5),
        ({"log.retention.ms": "-2"}, -1),
        ({"log.retention.hours": "1"}, 90 * 60_000),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: Path, given: Mapping[str, str], retention_ms: int) -> None:
    assert load_settings(properties, given).retention_ms == retention_ms


def test_the_command_line_overrides_the_file(properties: Path) -> None:
    assert load_settings(properties, {"broker.rack": "rack-z"}).rack == "rack-z"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num.io.threads": "0"}, ["--set: num.io.threads=0", "at least 1"]),
        ({"node.id": "x"}, ["--set: node.id=x", "Not a number"]),
        ({"inter.broker.listener.name": "SECURE2"}, ["inter.broker.listener.name=SECURE2", "protocol.map"]),
        ({"listener.name.plaintext.max.connections": "many"}, ["listener.name.plaintext.max.connections", "'many'"]),
        ({"authorizer.class.name": STANDARD, "super.users": "alice"}, ["super.users", "User:alice"]),
        ({"replica.lag.time.max.ms": "10"}, ["--set: replica.lag.time.max.ms=10", "fetch.wait.max.ms", "500"]),
        ({"listeners": "PLAINTEXT://a:70000"}, ["70000", "0 to 65535"]),
        ({"listeners": "PLAINTEXT://a"}, ["'PLAINTEXT://a'", "PLAINTEXT://host:9092"]),
        ({"process.roles": "broker,zookeeper"}, ["process.roles", "broker, controller"]),
        ({"controller.quorum.voters": "1@a"}, ["controller.quorum.voters=1@a", "{id}@{host}:{port}"]),
    ],
)
def test_an_error_has_the_setting_its_value_and_what_is_allowed(
    properties: Path, given: Mapping[str, str], words: list[str]
) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(properties, given)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_an_error_in_a_file_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"server\.properties, line 20: message\.max\.bytes=many: Not a num"):
        load_text(tmp_path, FILE + "message.max.bytes=many\n")
    with pytest.raises(InvalidConfiguration, match=r"server\.properties, line 4: listeners=.*controller\.quorum\.b"):
        load_text(tmp_path, FILE.replace("SECURE://[::1]:9094", "OTHER://[::1]:9094:controller.quorum.b"))
    with pytest.raises(
        InvalidConfiguration, match=r"server\.properties: process\.roles: missing; it must be broker, c"
    ):
        load_text(tmp_path, "node.id=1\n")
    with pytest.raises(InvalidConfiguration, match=r"server\.properties, line 2: .*u12"):
        load_text(tmp_path, "a=b\nc=\\u12\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"nowhere\.properties cannot be read: No such file"):
        load_settings(tmp_path / "nowhere.properties")


def test_unknown_names_get_a_warning_with_a_suggestion(tmp_path: Path) -> None:
    text = FILE + "num.partition=5\nzookeeper.connect=a:2181\nsuper.users=User:admin\nrsm.config.bucket=b\nqqq=1\n"
    prefix = f"{tmp_path}/server.properties, line"
    assert load_text(tmp_path, text).warnings == (
        f"{prefix} 20: num.partition is not a setting and is ignored; did you mean num.partitions?",
        f"{prefix} 21: zookeeper.connect was removed in Kafka 4.0 and is ignored",
        f"{prefix} 24: qqq is not a setting and is ignored",
    )


def test_rare_heartbeats_get_a_warning(tmp_path: Path) -> None:
    (warning,) = changed(tmp_path, broker_heartbeat_interval_ms="5000").warnings
    assert "broker.session.timeout.ms=9000" in warning


def test_unsupported_classes_get_a_warning(tmp_path: Path) -> None:
    (warning,) = changed(tmp_path, client_quota_callback_class="com.example.Quotas").warnings
    assert warning.startswith("client.quota.callback.class=com.example.Quotas names a Java class")
    (warning,) = changed(tmp_path, group_share_assignors="com.example.Fair").warnings
    assert warning.startswith("group.share.assignors=com.example.Fair names a Java class")


def test_plugin_classes_get_no_warning(tmp_path: Path) -> None:
    assert not changed(tmp_path, create_topic_policy_class_name="com.example.Policy").warnings
    assert not changed(tmp_path, group_consumer_assignors="com.example.Nearest,uniform").warnings


@pytest.mark.parametrize("reference", ["${file:/secrets:key}", "a${env:HOME}b", "${dir:/a:b}"])
def test_config_providers_are_not_expanded(tmp_path: Path, reference: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"line 20: broker\.rack.*config provider"):
        load_text(tmp_path, FILE + f"broker.rack={reference}\n")


@pytest.mark.parametrize("text", ["", "-1", ",", "a:b,c", "://", "9" * 40])
def test_any_bad_value_gives_a_clear_error(text: str) -> None:
    taken = 0
    for name in broker_settings():
        try:
            load_settings(None, {name: text})
            taken += 1
        except InvalidConfiguration as error:
            assert str(error).startswith(("--set: ", "the defaults: "))  # noqa: PT017 - most raise, some do not
    assert 0 < taken < len(broker_settings())


def test_a_password_is_not_shown_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_text(tmp_path, FILE + "ssl.key.password=hush${vault:x}\nlistener.name.a.b=hush${vault:x}\n")
    assert "hush" not in str(caught.value)


def test_a_dollar_sign_alone_is_not_a_reference(tmp_path: Path) -> None:
    assert changed(tmp_path, broker_rack="a$b{c}").rack == "a$b{c}"


def test_several_listeners_may_have_port_0(tmp_path: Path) -> None:
    settings = load_settings(None, {"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"})
    assert [each.port for each in settings.listeners] == [0, 0]
    assert settings.quorum_bootstrap_servers == (Address("localhost", 0),)


def test_a_controller_on_all_interfaces_is_advertised_at_its_voter_address(tmp_path: Path) -> None:
    text = FILE.replace("CONTROLLER://host-3.example:9093", "CONTROLLER://0.0.0.0:9093")
    text = text.replace("3@host-3.example:9093", "3@voter-3.example:19093")
    assert [each.address for each in load_text(tmp_path, text).advertised_controllers] == [
        Address("voter-3.example", 19093)
    ]


def test_relative_directories_are_resolved_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(None, {"log.dirs": "a/,./a,b"})
    assert settings.log_dirs == (f"{tmp_path}/a", f"{tmp_path}/b")
    assert settings.metadata_log_dir == f"{tmp_path}/a"


def test_without_a_file_a_node_is_a_cluster_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    settings = load_settings(None)
    assert settings.roles == {"broker", "controller"}
    assert settings.node_id == 1
    assert [(each.name, str(each.address)) for each in settings.listeners] == [
        ("PLAINTEXT", "localhost:9092"),
        ("CONTROLLER", "localhost:9093"),
    ]
    assert [each.name for each in settings.advertised] == ["PLAINTEXT"]
    assert settings.quorum_bootstrap_servers == (Address("localhost", 9093),)
    assert settings.is_own_quorum
    assert settings.log_dirs == (f"{tmp_path}/ottla/node-1",)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == 1
    assert settings["transaction.state.log.min.isr"] == settings["share.coordinator.state.topic.min.isr"] == 1
    assert settings.warnings == ()


def test_defaults_follow_related_overrides() -> None:
    settings = load_settings(None, {"node.id": "4", "listeners": "PLAINTEXT://h:1,CONTROLLER://[::1]:2"})
    assert settings.quorum_bootstrap_servers == (Address("::1", 2),)
    assert settings.log_dirs[0].endswith("/node-4")
    with_log_dir = load_settings(None, {"log.dir": "/data/x"})
    assert with_log_dir.log_dirs == ("/data/x",)
    voter = load_settings(None, {"controller.quorum.voters": "1@h:2"})
    assert voter.quorum_bootstrap_servers == ()
    assert not voter.is_own_quorum


@pytest.mark.parametrize("topic", ["transaction.state.log", "share.coordinator.state.topic"])
@pytest.mark.parametrize(("replicas", "min_isr"), [("1", 1), (" 1 ", 1), ("2", 2), ("3", 2)])
def test_an_internal_topic_with_more_replicas_keeps_kafkas_min_isr(topic: str, replicas: str, min_isr: int) -> None:
    settings = load_settings(None, {f"{topic}.replication.factor": replicas})
    assert settings[f"{topic}.min.isr"] == min_isr
    explicit = load_settings(None, {f"{topic}.replication.factor": replicas, f"{topic}.min.isr": "1"})
    assert explicit[f"{topic}.min.isr"] == 1


def test_a_broker_without_a_file_needs_only_its_controllers() -> None:
    overrides = {"process.roles": "broker", "node.id": "2", "controller.quorum.bootstrap.servers": "c:9093"}
    settings = load_settings(None, overrides)
    assert [each.name for each in settings.listeners] == ["PLAINTEXT"]
    assert settings.protocols["CONTROLLER"] == PLAIN
    with pytest.raises(InvalidConfiguration, match=r"controller\.quorum\.bootstrap\.servers: must name"):
        load_settings(None, {"process.roles": "broker"})


def test_the_data_directory_depends_on_the_platform() -> None:
    home = Path.home()
    assert data_directory({}, "linux") == home / ".local/share/ottla"
    assert data_directory({}, "darwin") == home / "Library/Application Support/ottla"
    assert data_directory({"XDG_DATA_HOME": "/x"}, "linux") == Path("/x/ottla")
    assert data_directory({"XDG_DATA_HOME": "not/absolute"}, "linux") == home / ".local/share/ottla"


def test_a_listener_may_have_its_own_limits(tmp_path: Path) -> None:
    settings = changed(tmp_path, listener_name_plaintext_max_connections="7", max_connections="100")
    assert settings.limits_of("PLAINTEXT").max_listener_connections == 7
    assert settings.limits_of("PLAINTEXT").max_connections == settings.limits_of("SECURE").max_connections == 100
    assert settings.limits_of("SECURE").max_listener_connections > 100
