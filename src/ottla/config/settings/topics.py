"""The effective settings of a topic, and the checks across them.

Order of precedence, as in Kafka: the topic, the broker's dynamic settings, the cluster's dynamic defaults, the broker's
configuration file, the default. Within each, the synonyms of a topic setting have an order too: `log.retention.ms`
overrides `log.retention.hours`.
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
    """The source of a value, with the numbers of DescribeConfigs."""

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
    """A topic setting with its effective value."""

    setting: Setting
    value: Value
    source: ConfigSource
    given_as: str
    """The name under which the value was given: that of the topic setting or of a broker synonym."""

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
    """Return every topic setting with its effective value.

    Ignores unknown names, which a newer release may have stored. Raises InvalidSetting for an invalid value.
    """
    layers = tuple(frozenset(layer.items()) for layer in (dynamic_broker, dynamic_default, broker))
    inherited, errors = _inherited(*layers)
    settings = inherited.copy()
    for name, text in topic.items():
        setting = topic_settings().get(name)
        if setting is not None:
            settings[name] = EffectiveSetting(setting, setting.parse(text), ConfigSource.DYNAMIC_TOPIC, name)
    for name, error in errors.items():
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
    """Check the settings of a topic and return its effective settings.

    Raises InvalidSetting for an unknown name, an invalid value, or conflicting values. `before` are the topic's current
    settings; `remote_storage` says whether the cluster has remote storage.
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
            "remote storage can be disabled only with remote.log.delete.on.disable=true; to keep the remote data and"
            " stop copying, set remote.log.copy.disable=true instead",
        )
    return settings


_Given = frozenset[tuple[str, str]]


@lru_cache(maxsize=16)
def _inherited(
    dynamic_broker: _Given, dynamic_default: _Given, broker: _Given
) -> tuple[dict[str, EffectiveSetting], dict[str, InvalidSetting]]:
    """Return the settings that topics inherit, and the errors of inherited values that a topic must override.

    Cached, because thousands of topics share them.
    """
    layers = (
        (ConfigSource.DYNAMIC_BROKER, dict(dynamic_broker)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, dict(dynamic_default)),
        (ConfigSource.STATIC_BROKER, dict(broker)),
    )
    settings: dict[str, EffectiveSetting] = {}
    errors: dict[str, InvalidSetting] = {}
    for name, setting in topic_settings().items():
        try:
            settings[name] = _from_broker(setting, layers)
        except InvalidSetting as error:
            errors[name] = error
            settings[name] = EffectiveSetting(
                setting, setting.default_value, ConfigSource.DEFAULT, name
            )  # keeps the order
    return settings, errors


def _from_broker(setting: Setting, layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...]) -> EffectiveSetting:
    synonyms = SYNONYMS.get(setting.name, ())
    for source, layer in layers:
        for synonym in synonyms:
            if synonym in layer:
                value = setting.check(_converted(setting.name, synonym, layer[synonym]), given_as=synonym)
                return EffectiveSetting(setting, value, source, synonym)
    return EffectiveSetting(setting, setting.default_value, ConfigSource.DEFAULT, setting.name)


def _converted(name: str, synonym: str, text: str) -> Value:
    """Return a broker setting's value in the unit of the topic setting."""
    value = broker_settings()[synonym].parse(text)
    if isinstance(value, int) and not isinstance(value, bool):
        value *= _MS_PER_UNIT.get(synonym.rpartition(".")[2], 1)
        if name == "retention.ms" and value < 0:
            return -1  # a broker accepts any negative time for "forever", a topic only -1
    return value


def _check_compaction_lags(values: Mapping[str, Value]) -> None:
    least_ms, most_ms = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if least_ms > most_ms:
        raise _conflict(
            values, "min.compaction.lag.ms", f"Value must not be more than max.compaction.lag.ms ({most_ms})"
        )


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
