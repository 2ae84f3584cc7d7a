"""The text of a setting is parsed to its value, or to an error that says what is allowed."""

import json
import subprocess
import sys
from itertools import chain

import pytest

from ottla.config.settings.catalogue import broker_settings, group_settings, suggest_name, topic_settings
from ottla.config.settings.checks import check_of
from ottla.config.settings.setting import Importance, InvalidSetting, Setting, UpdateMode
from ottla.config.settings.topic_table import SYNONYMS
from ottla.config.settings.values import Password, SettingType, Value, parse_value, show_value

ALL = list(chain(broker_settings().values(), topic_settings().values(), group_settings().values()))


def make_setting(kind: SettingType, valid: str = "any") -> Setting:
    return Setting("the.name", kind, None, valid, Importance.LOW, UpdateMode.READ_ONLY)


def test_no_setting_of_kafka_is_missing() -> None:
    listed = [sum(not setting.internal for setting in kind().values()) for kind in (broker_settings, topic_settings)]
    assert [*listed, len(group_settings())] == [340, 33, 17]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_default_is_allowed_and_shown_as_it_is_written(setting: Setting) -> None:
    check_of(setting.type, setting.valid)  # raises if the notation is unknown
    assert show_value(setting.default_value) == setting.default
    assert not (setting.required and setting.default is not None)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SettingType.BOOLEAN, " True\n", True),
        (SettingType.INT, "+07", 7),
        (SettingType.SHORT, "-32768", -32768),
        (SettingType.LONG, " 9223372036854775807 ", (1 << 63) - 1),
        (SettingType.DOUBLE, "5.e-1d", 0.5),
        (SettingType.STRING, "\t a  b \n", "a  b"),
        (SettingType.LIST, "a , b,,c ", ("a", "b", "", "c")),
        (SettingType.LIST, "  ", ()),
        (SettingType.CLASS, " a.B ", "a.B"),
        (SettingType.PASSWORD, " secret ", Password("secret")),
    ],
)
def test_texts_are_read_as_kafka_reads_them(kind: SettingType, text: str, value: Value) -> None:
    assert make_setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "valid", "text", "reason"),
    [
        (SettingType.BOOLEAN, "any", "yes", "Expected value to be either true or false"),
        (SettingType.INT, "any", "2147483648", "Not a number of type INT"),
        (SettingType.LONG, "any", "9" * 5000, "Not a number of type LONG"),
        (SettingType.SHORT, "any", "1_0", "Not a number of type SHORT"),
        (SettingType.DOUBLE, "any", "inf", "Not a number of type DOUBLE"),
        (SettingType.INT, "[1,...]", "0", "Value must be at least 1"),
        (SettingType.DOUBLE, "[0,...,1]", "1.01", "Value must be no more than 1"),
        (SettingType.INT, "[1,...,9] or -1", "0", "Value must be between 1 and 9 or equal to -1"),
        (SettingType.STRING, "[a, b]", "A", "String must be one of: a, b"),
        (SettingType.STRING, "(case insensitive) [A, B]", "c", "String must be one of (case insensitive): A, B"),
        (SettingType.STRING, "non-empty string", " ", "String must be non-empty"),
        (SettingType.LIST, "non-empty items", "", "List must not be empty. Valid values include: any non-empty value"),
        (SettingType.LIST, "items", "a,,b", "List must not contain empty items"),
        (SettingType.LIST, "[a, b]", "a,c", "String must be one of: a, b"),
    ],
)
def test_an_error_names_the_setting_the_value_and_what_is_allowed(
    kind: SettingType, valid: str, text: str, reason: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        make_setting(kind, valid).parse(text)
    assert str(caught.value) == f"Invalid value {text} for configuration the.name: {reason}"
    assert (caught.value.name, caught.value.value, caught.value.reason) == ("the.name", text, reason)


def test_lists_drop_duplicates() -> None:
    assert topic_settings()["cleanup.policy"].parse("delete, compact,delete") == ("delete", "compact")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e7, "1.0E7"), (0.001, "0.001"), (1.5e-5, "1.5E-5"), (-0.0, "-0.0"), (123456.0, "123456.0")],
)
def test_doubles_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert show_value(value) == text
    assert parse_value(SettingType.DOUBLE, text) == value


def test_a_password_is_not_shown() -> None:
    assert repr(make_setting(SettingType.PASSWORD).parse("x")) == "[hidden]"
    assert str(Password("x")) == "[hidden]"


def test_a_similar_name_is_suggested() -> None:
    assert suggest_name("retention.msec", topic_settings()) == "retention.ms"
    assert suggest_name("log.segments.bytes", broker_settings()) == "log.segment.bytes"
    assert suggest_name("zzz", topic_settings()) is None


def test_a_topics_defaults_are_those_of_the_broker() -> None:
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            default = broker_settings()[synonym].default_value
            if default is not None and not synonym.endswith((".hours", ".minutes")):
                assert topic_settings()[name].default_value == default


def test_the_tables_are_read_quickly_and_only_on_use() -> None:
    script = """if True:
        import json, time
        from ottla.config.settings.catalogue import broker_settings, topic_settings, group_settings
        before = broker_settings.cache_info().currsize
        start = time.perf_counter()
        broker_settings(), topic_settings(), group_settings()
        print(json.dumps([before, time.perf_counter() - start]))
    """
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", script])) for _ in range(3)]
    assert all(before == 0 for before, _ in runs)
    assert min(seconds for _, seconds in runs) < 0.005
