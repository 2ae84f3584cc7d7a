"""A resource's settings as DescribeConfigs shows them: value, source, type and synonyms."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.settings.brokers import (
    BrokerLayers,
    Synonym,
    broker_setting,
    broker_synonyms,
    drop_invalid_settings,
    is_dynamic,
)
from ottla.config.settings.catalogue import broker_settings, group_settings, topic_settings
from ottla.config.settings.setting import Importance, Setting
from ottla.config.settings.topic_table import SYNONYMS
from ottla.config.settings.topics import ConfigSource, effective_topic_settings
from ottla.config.settings.values import SettingType, show_value
from ottla.metadata.image.image import Image

TYPE_NUMBERS: Final = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.SHORT: 4,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
    SettingType.CLASS: 8,
    SettingType.PASSWORD: 9,
}
UNKNOWN_TYPE: Final = 0
_CLIENT_METRICS: Final = {
    name: Setting(name, kind, default, "any", Importance.MEDIUM, None)
    for name, kind, default in (
        ("interval.ms", SettingType.INT, "300000"),
        ("match", SettingType.LIST, ""),
        ("metrics", SettingType.LIST, ""),
    )
}


class Entry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    source: ConfigSource
    type: int
    is_sensitive: bool
    read_only: bool
    synonyms: list[Synonym]


def layers_of(image: Image, node_id: int, static: Mapping[str, str]) -> BrokerLayers:
    """Return the settings of a broker by their source."""
    return BrokerLayers(
        drop_invalid_settings(image.broker_config(node_id)), drop_invalid_settings(image.default_broker_config), static
    )


def topic_entries(own: Mapping[str, str], layers: BrokerLayers) -> Iterable[Entry]:
    """Yield a topic's settings: its own, or the broker's defaults."""
    effective = effective_topic_settings(
        own, layers.static, dynamic_broker=layers.broker, dynamic_default=layers.default
    )
    for name, value in effective.items():
        if value.setting.internal and name not in own:
            continue
        broker_names = SYNONYMS.get(name)
        synonyms = broker_synonyms(broker_names[0], layers, hidden=False) if broker_names else []
        if name in own:
            synonyms.insert(0, Synonym(name, value.text, ConfigSource.DYNAMIC_TOPIC))
        yield _entry(name, value.text, value.setting, synonyms)
    for name in own:
        if name not in topic_settings():  # stored by another release: its meaning is unknown, so its value is hidden
            yield _entry(name, None, None, [Synonym(name, None, ConfigSource.DYNAMIC_TOPIC)])


def broker_entries(layers: BrokerLayers) -> Iterable[Entry]:
    """Yield all settings of a broker, also unknown names in its configuration."""
    given = layers.combined()
    listed = {name: None for name, setting in broker_settings().items() if not setting.internal}
    for name in listed | dict.fromkeys(given):
        setting = broker_setting(name)
        hidden = setting is None or setting.is_sensitive
        yield _entry(
            name,
            None if setting is None or hidden else _text(setting, given.get(name)),
            setting,
            broker_synonyms(name, layers, hidden=hidden),
            read_only=not is_dynamic(name),
        )


def default_broker_entries(layers: BrokerLayers) -> Iterable[Entry]:
    """Yield the dynamic defaults of all brokers."""
    for name, value in layers.default.items():
        setting = broker_setting(name)
        hidden = setting is None or setting.is_sensitive
        synonyms = broker_synonyms(name, layers, hidden=hidden)
        defaults = [synonym for synonym in synonyms if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
        yield _entry(name, None if hidden else value, setting, defaults, read_only=not is_dynamic(name))


def group_entries(own: Mapping[str, str], layers: BrokerLayers) -> Iterable[Entry]:
    """Yield a group's settings: its own, or the broker's defaults."""
    given = layers.combined()
    for name, setting in group_settings().items():
        broker_name = f"group.{name}"
        if broker_name in broker_settings():
            synonyms = broker_synonyms(broker_name, layers, hidden=False)
            inherited = _text(broker_settings()[broker_name], given.get(broker_name))
        else:
            synonyms = [Synonym(name, setting.default, ConfigSource.DEFAULT)]
            inherited = setting.default
        value = _text(setting, own[name]) if name in own else inherited
        if name in own:
            synonyms.insert(0, Synonym(name, value, ConfigSource.GROUP))
        yield _entry(name, value, setting, synonyms)


def client_metrics_entries(own: Mapping[str, str]) -> Iterable[Entry]:
    """Yield the settings of a subscription of client metrics."""
    for name, setting in _CLIENT_METRICS.items():
        value = _text(setting, own.get(name))
        yield _entry(name, value, setting, [Synonym(name, value, ConfigSource.CLIENT_METRICS)] if name in own else [])


def _entry(
    name: str, value: str | None, setting: Setting | None, synonyms: list[Synonym], *, read_only: bool = False
) -> Entry:
    return Entry(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        UNKNOWN_TYPE if setting is None else TYPE_NUMBERS[setting.type],
        setting is None or setting.is_sensitive,
        read_only,
        synonyms,
    )


def _text(setting: Setting, given: str | None) -> str | None:
    return show_value(setting.default_value if given is None else setting.parse(given))
