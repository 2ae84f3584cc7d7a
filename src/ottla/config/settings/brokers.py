"""A broker's settings in force: those given while it runs, else those of its file, else Kafka's; and who says what.

Order of precedence: what is set on this broker, what is set on all brokers, the configuration file, the default. A
setting of one listener (`listener.name.<name>.<setting>`) goes before the setting it is named after.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.setting import Importance, InvalidSetting, Setting, UpdateMode
from ottla.config.settings.topics import NO_SETTINGS, ConfigSource
from ottla.config.settings.values import SettingType

listener_override = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL).fullmatch
"""Finds the setting's own name in one for a listener."""

_SEVERAL_NAMES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: names for names in _SEVERAL_NAMES for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
# Their names on a listener have the mechanism's in between.
_OF_MECHANISMS: Final = (
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
"""What can be set only while a broker runs: how fast replicas may be moved."""


class Synonym(NamedTuple):
    """One of the places that could give a setting its value."""

    name: str
    value: str | None
    source: ConfigSource


class BrokerLayers(NamedTuple):
    """Everything that was given, by who gave it."""

    broker: Mapping[str, str] = NO_SETTINGS
    """Set on this broker while it runs."""
    default: Mapping[str, str] = NO_SETTINGS
    """Set on all brokers."""
    static: Mapping[str, str] = NO_SETTINGS
    """The configuration file."""

    def combined(self) -> dict[str, str]:
        """What a broker with all of it was given in effect: the finer layer goes first, under whatever name."""
        given = with_both_node_ids(self.static)
        for layer in (self.default, self.broker):
            for name, value in layer.items():
                # hours that are set while a broker runs count, though the file has minutes
                for other in _SYNONYMS.get(name, ()):
                    given.pop(other, None)
                given[name] = value
        return given


def with_both_node_ids(static: Mapping[str, str]) -> dict[str, str]:
    """A node's id goes by two names."""
    given = dict(static)
    if "node.id" in given:
        given.setdefault("broker.id", given["node.id"])
    elif "broker.id" in given:
        given["node.id"] = given["broker.id"]
    return given


def broker_setting(name: str) -> Setting | None:
    """The setting that a name stands for, also on a listener and beside the configuration file."""
    setting = broker_settings().get(name) or _RATES.get(name)
    if setting is None and (found := listener_override(name)):
        return broker_settings().get(_base_name(found[1]))
    return setting


def is_dynamic(name: str) -> bool:
    """Whether a setting is listed as one that can be changed while a broker runs."""
    setting = broker_settings().get(name) or _RATES.get(name)
    return setting is not None and setting.update in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)


def broker_synonyms(name: str, layers: BrokerLayers, *, hidden: bool) -> list[Synonym]:
    """What gives a setting its value, and what would if that were not there; secrets have no value here."""
    names = _names(name)
    static = with_both_node_ids(layers.static)
    found = [
        Synonym(each, None if hidden else given[each], source)
        for source, given in (
            (ConfigSource.DYNAMIC_BROKER, layers.broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, layers.default),
            (ConfigSource.STATIC_BROKER, static),
            (ConfigSource.DEFAULT, _defaults(names)),
        )
        for each in names
        if each in given
    ]
    # As in Kafka, nothing is told of other names in front of the first entry under the setting's own.
    first = next((number for number, each in enumerate(found) if each.name == name), len(found))
    return found[first:]


def drop_invalid_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What was set, but for values that cannot be: another release may have stored them."""
    return {name: value for name, value in given.items() if not is_invalid(name, value)}


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
    if found := listener_override(name):
        return (name, _base_name(found[1]))
    return (name,)


def _base_name(name: str) -> str:
    return next((each for each in _OF_MECHANISMS if name.endswith(each)), name)


def _defaults(names: Iterable[str]) -> dict[str, str]:
    known = broker_settings()
    defaults = ((name, known[name].default) for name in names if name in known)
    return {name: default for name, default in defaults if default is not None}
