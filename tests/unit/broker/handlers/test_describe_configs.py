"""DescribeConfigs: values, sources, synonyms and what is hidden."""

import logging
from collections.abc import Iterator

import pytest

from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.records.metadata_records import ConfigRecord
from ottla.protocol.messages.rpc.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.unit.broker.handlers.admin import Admin

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin()
    made.create_topic("t")
    yield made
    made.close()


def describe(
    admin: Admin, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms, include_documentation=True)
    (result,) = admin.ask(request, version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def entry(admin: Admin, kind: int, name: str, setting: str) -> DescribeConfigsResourceResult:
    (found,) = describe(admin, kind, name, setting).configs
    assert found.name == setting
    return found


def synonyms_of(found: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def set_(admin: Admin, kind: int, name: str, setting: str, value: str | None) -> None:
    admin.apply(ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=value))


def test_a_setting_of_a_topic_overrides_its_brokers(admin: Admin) -> None:
    assert entry(admin, TOPIC, "t", "retention.ms").value == "300000"
    set_(admin, BROKER, "", "log.retention.ms", "3")
    set_(admin, BROKER, "1", "log.retention.ms", "2")
    set_(admin, TOPIC, "t", "retention.ms", "1")
    found = entry(admin, TOPIC, "t", "retention.ms")
    assert (found.value, found.config_source, found.read_only, found.config_type) == ("1", 1, False, 5)
    assert synonyms_of(found) == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.minutes", "5", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_prefixed_names_of_a_setting_are_not_described(admin: Admin) -> None:
    found = entry(admin, TOPIC, "t", "retention.ms")
    assert (synonyms_of(found), found.config_source) == ([], 5)


def test_a_broker_describes_its_effective_settings(admin: Admin) -> None:
    set_(admin, BROKER, "1", "num.io.threads", "9")
    found = entry(admin, BROKER, "1", "num.io.threads")
    assert (found.value, found.config_source, found.read_only) == ("9", 2, False)
    assert synonyms_of(found) == [("num.io.threads", "9", 2), ("num.io.threads", "8", 4), ("num.io.threads", "8", 5)]
    assert entry(admin, BROKER, "1", "node.id").read_only
    assert synonyms_of(entry(admin, BROKER, "1", "broker.id")) == [("broker.id", "1", 4), ("broker.id", "-1", 5)]


def test_secrets_are_hidden(admin: Admin) -> None:
    found = entry(admin, BROKER, "1", "ssl.key.password")
    assert (found.value, found.is_sensitive, found.config_type) == (None, True, 9)
    assert synonyms_of(found) == [("ssl.key.password", None, 4)]


def test_the_value_of_an_unknown_setting_is_hidden(admin: Admin) -> None:
    set_(admin, BROKER, "1", "of.a.plugin", "password123")
    found = entry(admin, BROKER, "1", "of.a.plugin")
    assert (found.value, found.is_sensitive, found.config_type, found.read_only) == (None, True, 0, True)
    assert synonyms_of(found) == [("of.a.plugin", None, 2)]
    set_(admin, TOPIC, "t", "of.another.release", "x")
    assert entry(admin, TOPIC, "t", "of.another.release").is_sensitive


def test_a_setting_of_one_listener_has_the_general_one_as_a_synonym(admin: Admin) -> None:
    set_(admin, BROKER, "1", "listener.name.plaintext.max.connections", "60")
    found = entry(admin, BROKER, "1", "listener.name.plaintext.max.connections")
    assert (found.value, found.config_type) == ("60", 3)
    assert [name for name, _, _ in synonyms_of(found)] == ["listener.name.plaintext.max.connections", "max.connections"]


def test_invalid_stored_values_are_not_in_force(admin: Admin) -> None:
    set_(admin, BROKER, "1", "num.io.threads", "many")
    found = entry(admin, BROKER, "1", "num.io.threads")
    assert (found.value, found.config_source) == ("8", 4)


def test_the_defaults_of_all_brokers(admin: Admin) -> None:
    set_(admin, BROKER, "", "num.io.threads", "9")
    set_(admin, BROKER, "1", "num.io.threads", "10")
    (found,) = describe(admin, BROKER, "").configs
    assert (found.value, found.config_source, synonyms_of(found)) == ("9", 3, [("num.io.threads", "9", 3)])


def test_a_group_inherits_the_brokers_defaults(admin: Admin) -> None:
    found = entry(admin, GROUP, "g", "consumer.session.timeout.ms")
    assert (found.value, found.config_source) == ("46000", 4)
    set_(admin, GROUP, "g", "consumer.session.timeout.ms", "50000")
    found = entry(admin, GROUP, "g", "consumer.session.timeout.ms")
    assert synonyms_of(found) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "46000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    set_(admin, GROUP, "g", "share.isolation.level", "read_committed")
    assert synonyms_of(entry(admin, GROUP, "g", "share.isolation.level")) == [
        ("share.isolation.level", "read_committed", 8),
        ("share.isolation.level", "read_uncommitted", 5),
    ]


def test_a_subscription_of_client_metrics(admin: Admin) -> None:
    assert {each.name: each.value for each in describe(admin, METRICS, "m").configs} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    set_(admin, METRICS, "m", "interval.ms", "1000")
    assert synonyms_of(entry(admin, METRICS, "m", "interval.ms")) == [("interval.ms", "1000", 7)]


def test_loggers_have_levels(admin: Admin) -> None:
    name = "tests.api.described"
    logging.getLogger(name).setLevel(logging.ERROR)
    found = entry(admin, LOGGER, "1", name)
    assert (found.value, found.config_source, found.read_only) == ("ERROR", 6, False)
    assert entry(admin, LOGGER, "1", "root").value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def test_synonyms_are_included_on_request_only(admin: Admin) -> None:
    assert not any(each.synonyms for each in describe(admin, BROKER, "1", synonyms=False).configs)


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_is_served(admin: Admin, version: int) -> None:
    assert len(describe(admin, BROKER, "1", version=version).configs) > 300


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", 3),
        (TOPIC, "a/b", 17),
        (BROKER, "2", 42),
        (BROKER, "x", 42),
        (BROKER, " 1", 42),
        (LOGGER, "", 42),
        (LOGGER, "2", 42),
        (METRICS, "", 42),
        (GROUP, "", 42),
        (5, "x", 42),
    ],
)
def test_unknown_resources_are_refused(admin: Admin, kind: int, name: str, code: int) -> None:
    found = describe(admin, kind, name)
    assert (found.error_code, found.resource_type, found.resource_name) == (code, kind, name)
    assert found.configs == []
