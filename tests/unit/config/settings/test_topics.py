"""Effective settings of topics: precedence, sources and conflicts."""

import pytest

from ottla.config.settings.setting import InvalidSetting
from ottla.config.settings.topics import ConfigSource, effective_topic_settings, validate_topic_settings


def test_a_topic_overrides_its_broker_and_the_broker_the_default() -> None:
    settings = effective_topic_settings(
        {"segment.bytes": "2097152"}, {"log.segment.bytes": "3145728", "message.max.bytes": "7"}
    )
    assert (settings["segment.bytes"].value, settings["segment.bytes"].source) == (2097152, ConfigSource.DYNAMIC_TOPIC)
    limit = settings["max.message.bytes"]
    assert (limit.value, limit.source, limit.given_as) == (7, ConfigSource.STATIC_BROKER, "message.max.bytes")
    assert (settings["flush.ms"].value, settings["flush.ms"].source) == ((1 << 63) - 1, ConfigSource.DEFAULT)
    assert settings["flush.ms"].text == "9223372036854775807"


def test_dynamic_broker_settings_override_the_configuration_file() -> None:
    static = {"log.retention.ms": "1"}
    default = {"log.retention.ms": "2"}
    settings = effective_topic_settings({}, static, dynamic_default=default)
    assert (settings["retention.ms"].value, settings["retention.ms"].source) == (2, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    settings = effective_topic_settings({}, static, dynamic_default=default, dynamic_broker={"log.retention.ms": "3"})
    assert (settings["retention.ms"].value, settings["retention.ms"].source) == (3, ConfigSource.DYNAMIC_BROKER)


@pytest.mark.parametrize(
    ("broker", "retention_ms", "given_as"),
    [
        ({"log.retention.hours": "2"}, 7_200_000, "log.retention.hours"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000, "log.retention.minutes"),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4, "log.retention.ms"),
        ({"log.retention.hours": "-1"}, -1, "log.retention.hours"),
        ({"log.retention.ms": "-9"}, -1, "log.retention.ms"),
    ],
)
def test_the_first_synonym_wins_and_units_are_converted(
    broker: dict[str, str], retention_ms: int, given_as: str
) -> None:
    retention = effective_topic_settings({}, broker)["retention.ms"]
    assert (retention.value, retention.given_as) == (retention_ms, given_as)


def test_an_unknown_stored_setting_is_ignored() -> None:
    assert "from.the.future" not in effective_topic_settings({"from.the.future": "1"})


def test_an_unknown_name_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(
        InvalidSetting, match=r"Unknown topic config name: retention\.mss\. Did you mean retention\.ms\?"
    ):
        validate_topic_settings({"retention.mss": "1"})


def test_an_invalid_inherited_value_names_the_broker_setting() -> None:
    with pytest.raises(
        InvalidSetting, match=r"Invalid value 0 for configuration log\.roll\.ms: .* \(for segment\.ms\)"
    ):
        effective_topic_settings({}, {"log.roll.ms": "0"})


@pytest.mark.parametrize(
    ("topic", "name", "reason"),
    [
        (
            {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms",
            "Value must not be more than max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
            "cleanup.policy",
            "Remote storage needs cleanup.policy to be delete or empty",
        ),
        (
            {"remote.storage.enable": "true", "local.retention.bytes": "2", "retention.bytes": "1"},
            "local.retention.bytes",
            "Value must not be more than that of retention.bytes, 1",
        ),
    ],
)
def test_conflicting_settings_are_rejected(topic: dict[str, str], name: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        validate_topic_settings(topic, remote_storage=True)
    assert str(caught.value) == f"Invalid value {topic[name]} for configuration {name}: {reason}"


def test_remote_storage_must_be_available_and_is_not_dropped_silently() -> None:
    with pytest.raises(InvalidSetting, match="Tiered storage is disabled"):
        validate_topic_settings({"remote.storage.enable": "true"})
    before = {"remote.storage.enable": "true"}
    with pytest.raises(InvalidSetting, match=r"only with remote\.log\.delete\.on\.disable=true"):
        validate_topic_settings({}, before=before, remote_storage=True)
    validate_topic_settings({"remote.log.delete.on.disable": "true"}, before=before, remote_storage=True)
