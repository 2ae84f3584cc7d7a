"""The effective settings of a broker and their sources.

Order of precedence: dynamic settings of this broker, dynamic settings of all brokers, the configuration file, the
default. The setting of a listener (`listener.name.<name>.<setting>`) takes precedence over `<setting>`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.setting import Importance, InvalidSetting, Setting, UpdateMode
from ottla.config.settings.topics import NO_SETTINGS, ConfigSource
from ottla.config.settings.values import SettingType

listener_override = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL).fullmatch
"""Matches a setting of a listener. The group is the setting's own name."""

_SEVERAL_NAMES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: names for names in _SEVERAL_NAMES for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
# The names of these settings on a listener contain the SASL mechanism.
_PER_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_RATES: Final = {
    name: Setting(name, SettingType.LONG, None, "[0,...]", Importance.MEDIUM, UpdateMode.CLUSTER_WIDE)
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""Throttles of replication, which exist only as dynamic settings."""


class Synonym(NamedTuple):
    """A candidate value of a setting, with its source."""

    name: str
    value: str | None
    source: ConfigSource


class BrokerLayers(NamedTuple):
    """All given settings, by source."""

    broker: Mapping[str, str] = NO_SETTINGS
    """The dynamic settings of this broker."""
    default: Mapping[str, str] = NO_SETTINGS
    """The dynamic settings of all brokers."""
    static: Mapping[str, str] = NO_SETTINGS
    """The configuration file."""

    def combined(self) -> dict[str, str]:
        """Return the given settings of all layers. A higher layer takes precedence under any of a setting's names."""
        settings = with_both_node_ids(self.static)
        for layer in (self.default, self.broker):
            for name, value in layer.items():
                # dynamic hours override minutes in the file
                for other in _SYNONYMS.get(name, ()):
                    settings.pop(other, None)
                settings[name] = value
        return settings


def with_both_node_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the node's id under both of its names."""
    settings = dict(static)
    if "node.id" in settings:
        settings.setdefault("broker.id", settings["node.id"])
    elif "broker.id" in settings:
        settings["node.id"] = settings["broker.id"]
    return settings


def broker_setting(name: str) -> Setting | None:
    """Return the setting of a name, which may be that of a listener or a dynamic-only setting."""
    setting = broker_settings().get(name) or _RATES.get(name)
    if setting is None and (match := listener_override(name)):
        return broker_settings().get(_base_name(match[1]))
    return setting


def is_dynamic(name: str) -> bool:
    """Return whether a setting can be changed while a broker runs."""
    setting = broker_settings().get(name) or _RATES.get(name)
    return setting is not None and setting.update in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)


def broker_synonyms(name: str, layers: BrokerLayers, *, hidden: bool) -> list[Synonym]:
    """Return the candidate values of a setting, the effective one first. `hidden` omits the values."""
    names = _names(name)
    static = with_both_node_ids(layers.static)
    synonyms = [
        Synonym(synonym, None if hidden else settings[synonym], source)
        for source, settings in (
            (ConfigSource.DYNAMIC_BROKER, layers.broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, layers.default),
            (ConfigSource.STATIC_BROKER, static),
            (ConfigSource.DEFAULT, _defaults(names)),
        )
        for synonym in names
        if synonym in settings
    ]
    # As in Kafka, omit entries under other names before the first one under the setting's own name.
    first = next((index for index, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return synonyms[first:]


def drop_invalid_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without invalid values, which another release may have stored."""
    return {name: value for name, value in settings.items() if not is_invalid(name, value)}


def is_invalid(name: str, value: str) -> bool:
    setting = broker_setting(name)
    if setting is None:
        return False
    try:
        setting.parse(value)
    except InvalidSetting:
        return True
    return False


def _names(name: str) -> tuple[str, ...]:
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    if match := listener_override(name):
        return (name, _base_name(match[1]))
    return (name,)


def _base_name(name: str) -> str:
    return next((suffix for suffix in _PER_MECHANISM if name.endswith(suffix)), name)


def _defaults(names: Iterable[str]) -> dict[str, str]:
    catalogue = broker_settings()
    defaults = ((name, catalogue[name].default) for name in names if name in catalogue)
    return {name: default for name, default in defaults if default is not None}
