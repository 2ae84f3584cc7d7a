"""A topic's settings in force: its own, else those of its broker, else Kafka's; and whether they go together.

Order of precedence, as in Kafka: the topic, the broker's own dynamic settings, the cluster's dynamic defaults, the
broker's configuration file, the default. Within each, a topic setting's synonyms count in their order, so that
`log.retention.ms` hides `log.retention.hours`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from ottla.config.settings.catalogue import broker_settings, suggest_name, topic_settings
from ottla.config.settings.setting import InvalidSetting, Setting
from ottla.config.settings.topic_table import SYNONYMS
from ottla.config.settings.values import Value, show_value


class ConfigSource(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A topic setting with the value in force."""

    setting: Setting
    value: Value
    source: ConfigSource
    given_as: str
    """The name under which the value was given: the topic setting's own or a broker synonym."""

    @property
    def text(self) -> str | None:
        return show_value(self.value)


NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_MS_PER_UNIT: Final = {"hours": 3_600_000, "minutes": 60_000}


def effective_topic_settings(
    topic: Mapping[str, str] = NO_SETTINGS,
    broker: Mapping[str, str] = NO_SETTINGS,
    *,
    dynamic_broker: Mapping[str, str] = NO_SETTINGS,
    dynamic_default: Mapping[str, str] = NO_SETTINGS,
) -> dict[str, EffectiveSetting]:
    """Every topic setting with its value in force. Names that are unknown are passed over: a newer Kafka may have
    stored them. Raises InvalidSetting for a value that cannot be."""
    layers = tuple(frozenset(given.items()) for given in (dynamic_broker, dynamic_default, broker))
    inherited, wrong = _inherited(*layers)
    settings = inherited.copy()
    for name, text in topic.items():
        setting = topic_settings().get(name)
        if setting is not None:
            settings[name] = EffectiveSetting(setting, setting.parse(text), ConfigSource.DYNAMIC_TOPIC, name)
    for name, error in wrong.items():
        if name not in topic:
            raise error
    return settings


def validate_topic_settings(
    topic: Mapping[str, str],
    broker: Mapping[str, str] = NO_SETTINGS,
    *,
    before: Mapping[str, str] = NO_SETTINGS,
    remote_storage: bool = False,
) -> dict[str, EffectiveSetting]:
    """The settings in force if the topic had these; raises InvalidSetting for an unknown name, a value that cannot be,
    or values that do not go together. `before` is what the topic has now, `remote_storage` whether the cluster has any.
    """
    for name in topic:
        if name not in topic_settings():
            guess = suggest_name(name, topic_settings())
            hint = f". Did you mean {guess}?" if guess else ""
            raise InvalidSetting(name, topic[name], "unknown name", f"Unknown topic config name: {name}{hint}")
    settings = effective_topic_settings(topic, broker)
    values = {name: setting.value for name, setting in settings.items()}
    _check_compaction_lags(values)
    if values["remote.storage.enable"]:
        _check_remote_storage(values, available=remote_storage)
    elif before.get("remote.storage.enable", "").upper() == "TRUE" and not values["remote.log.delete.on.disable"]:
        raise _conflict(
            values,
            "remote.storage.enable",
            "remote storage can be turned off only with remote.log.delete.on.disable=true; to keep the remote data and"
            " stop copying, set remote.log.copy.disable=true instead",
        )
    return settings


_Given = frozenset[tuple[str, str]]


@lru_cache(maxsize=16)
def _inherited(
    dynamic_broker: _Given, dynamic_default: _Given, broker: _Given
) -> tuple[dict[str, EffectiveSetting], dict[str, InvalidSetting]]:
    """What a topic has that sets nothing itself, the same for thousands of topics; and what it must set itself, as the
    brokers' value cannot be."""
    layers = (
        (ConfigSource.DYNAMIC_BROKER, dict(dynamic_broker)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, dict(dynamic_default)),
        (ConfigSource.STATIC_BROKER, dict(broker)),
    )
    found: dict[str, EffectiveSetting] = {}
    wrong: dict[str, InvalidSetting] = {}
    for name, setting in topic_settings().items():
        try:
            found[name] = _from_broker(setting, layers)
        except InvalidSetting as error:
            wrong[name] = error
            found[name] = EffectiveSetting(setting, setting.default_value, ConfigSource.DEFAULT, name)  # for its place
    return found, wrong


def _from_broker(setting: Setting, layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...]) -> EffectiveSetting:
    synonyms = SYNONYMS.get(setting.name, ())
    for source, given in layers:
        for synonym in synonyms:
            if synonym in given:
                value = setting.check(_converted(setting.name, synonym, given[synonym]), given_as=synonym)
                return EffectiveSetting(setting, value, source, synonym)
    return EffectiveSetting(setting, setting.default_value, ConfigSource.DEFAULT, setting.name)


def _converted(name: str, synonym: str, text: str) -> Value:
    """A broker setting's value in the unit of the topic setting."""
    value = broker_settings()[synonym].parse(text)
    if isinstance(value, int) and not isinstance(value, bool):
        value *= _MS_PER_UNIT.get(synonym.rpartition(".")[2], 1)
        if name == "retention.ms" and value < 0:
            return -1  # a broker takes any negative time for "forever"; a topic takes only -1
    return value


def _check_compaction_lags(values: Mapping[str, Value]) -> None:
    least, most = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if least > most:
        raise _conflict(values, "min.compaction.lag.ms", f"Value must not be more than max.compaction.lag.ms ({most})")


def _check_remote_storage(values: Mapping[str, Value], *, available: bool) -> None:
    if not available:
        raise _conflict(values, "remote.storage.enable", "Tiered storage is disabled in the broker")
    if values["cleanup.policy"] not in ((), ("delete",)):
        raise _conflict(values, "cleanup.policy", "Remote storage needs cleanup.policy to be delete or empty")
    for whole, local in (("retention.bytes", "local.retention.bytes"), ("retention.ms", "local.retention.ms")):
        total, here = _number(values, whole), _number(values, local)
        if here == -2:  # as much as the whole
            continue
        if total > -1 and here == -1:
            raise _conflict(values, local, f"Value must not be -1 as {whole} is {total}")
        if total > -1 and here > total:
            raise _conflict(values, local, f"Value must not be more than that of {whole}, {total}")
        if values["remote.log.copy.disable"] and here != total:
            raise _conflict(values, local, f"Value must equal {whole}, {total}, while remote.log.copy.disable is true")


def _conflict(values: Mapping[str, Value], name: str, reason: str) -> InvalidSetting:
    return InvalidSetting(name, show_value(values[name]), reason)


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value
