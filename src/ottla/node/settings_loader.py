"""Loads a node's configuration: Kafka's `server.properties` as it is, and settings of the command line.

Before the node starts, each setting is checked alone (`ottla.config.settings`) and against the others
(`consistency.py`). An error is an `InvalidConfiguration` with file and line, setting, value and what is allowed. An
unknown name is only a warning: a plug-in may read it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.config.defaults import is_single_node_quorum, one_node_settings
from ottla.config.listeners import (
    Address,
    SecurityProtocol,
    SettingConflict,
    advertised_controllers,
    parse_address,
    parse_listeners,
    parse_pairs,
    parse_protocol,
    protocol_map,
)
from ottla.config.node_settings import NodeSettings, ProcessRole
from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.ottla_settings import ottla_settings
from ottla.config.settings.properties import InvalidProperties, parse_properties
from ottla.config.settings.setting import InvalidSetting
from ottla.config.settings.values import Value
from ottla.config.unrecognized import warning_about
from ottla.node.consistency import check_consistency, doubtful_settings

__all__ = ["InvalidConfiguration", "NodeSettings", "ProcessRole", "load_settings", "rebuild_settings"]

LISTENER_PREFIX: Final = "listener.name."
# References that Kafka's config providers expand: ${provider:key} or ${provider:path:key}.
_provider_reference = re.compile(r"\$\{[^}:]+:[^}]*\}").search
_integer = re.compile(r"[+-]?[0-9]{1,10}").fullmatch
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_REQUIRED: Final = {
    "process.roles": "broker, controller or broker,controller",
    "node.id": "a number that is unique in the cluster",
    "controller.listener.names": "the names of the controller listeners, such as CONTROLLER",
}


class InvalidConfiguration(Exception):
    """A node cannot run with this configuration; the message says where the error is and what is allowed."""


class GivenSetting(NamedTuple):
    """The text of a setting, and where it comes from."""

    text: str
    origin: str


def load_settings(path: str | Path | None, overrides: Mapping[str, str] = _NOTHING) -> NodeSettings:
    """Return the settings of a file, or of a one-node cluster if `path` is None. `overrides` (`--set`) take precedence.

    Raise InvalidConfiguration.
    """
    if path is None:
        given = {name: GivenSetting(text, "the defaults") for name, text in one_node_settings(overrides).items()}
    else:
        given = _read_file(Path(path))
    given |= {name: GivenSetting(text, "--set") for name, text in overrides.items()}
    try:
        settings = _build(given, is_own_quorum=path is None and is_single_node_quorum(overrides))
        check_consistency(settings)
    except (InvalidSetting, SettingConflict) as wrong:
        raise _error(wrong, given, "the defaults" if path is None else str(path)) from None
    unknown = [note for name, each in given.items() if (note := warning_about(name, each.origin))]
    return replace(settings, warnings=(*unknown, *doubtful_settings(settings)))


def rebuild_settings(settings: NodeSettings, given: Mapping[str, str]) -> NodeSettings:
    """Return the settings of the same node with dynamic changes. Raise InvalidSetting or SettingConflict."""
    changed = {name: GivenSetting(text, "a change while running") for name, text in given.items()}
    rebuilt = _build(changed, is_own_quorum=settings.is_own_quorum)
    check_consistency(rebuilt)
    return replace(rebuilt, warnings=settings.warnings)


def _read_file(path: Path) -> dict[str, GivenSetting]:
    try:
        properties = parse_properties(path.read_bytes())
    except OSError as error:
        raise InvalidConfiguration(f"{path} cannot be read: {error.strerror or error}") from None
    except InvalidProperties as error:
        raise InvalidConfiguration(f"{path}, {error}") from None
    return {name: GivenSetting(each.value, f"{path}, line {each.line}") for name, each in properties.items()}


def _error(
    wrong: InvalidSetting | SettingConflict, given_settings: Mapping[str, GivenSetting], source: str
) -> InvalidConfiguration:
    """Return the error with the place of the setting. Passwords are not shown."""
    given = given_settings.get(wrong.name)
    if given is None:
        return InvalidConfiguration(f"{source}: {wrong.name}: {wrong.reason}")
    setting = broker_settings().get(wrong.name) or ottla_settings().get(wrong.name)
    shown = "" if setting is None or setting.is_sensitive else f"={given.text}"
    return InvalidConfiguration(f"{given.origin}: {wrong.name}{shown}: {wrong.reason}")


def _build(given_settings: Mapping[str, GivenSetting], *, is_own_quorum: bool) -> NodeSettings:
    """Parse all settings; `check_consistency` checks them against each other."""
    values = _parse(given_settings)
    names = _items(values, "controller.listener.names")
    protocols = protocol_map(
        str(values["listener.security.protocol.map"]),
        is_given="listener.security.protocol.map" in given_settings,
        controller_names=names,
        listeners=_items(values, "listeners"),
    )
    listeners = parse_listeners("listeners", _items(values, "listeners"), protocols, distinct_ports=True)
    texts = _items(values, "advertised.listeners")
    advertised = parse_listeners("advertised.listeners", texts, protocols, distinct_ports=False)
    voters = _voters(_items(values, "controller.quorum.voters"))
    node_id = values["node.id"]
    assert isinstance(node_id, int)
    log_dirs = _directories(_items(values, "log.dirs") or _items(values, "log.dir"))
    metadata_dir = values["metadata.log.dir"]
    if metadata_dir == "":
        raise SettingConflict("metadata.log.dir", "is empty: name a directory, or remove the setting")
    return NodeSettings(
        given=MappingProxyType({name: each.text for name, each in given_settings.items()}),
        warnings=(),
        values=MappingProxyType(values),
        listener_settings=_listener_settings(given_settings),
        is_own_quorum=is_own_quorum,
        node_id=node_id,
        roles=frozenset(map(ProcessRole, _items(values, "process.roles"))),
        listeners=listeners,
        advertised=tuple(endpoint for endpoint in advertised or listeners if endpoint.name not in names),
        advertised_controllers=advertised_controllers(names, listeners, advertised, voters, node_id),
        controller_listener_names=names,
        inter_broker_listener_name=_inter_broker_listener(given_settings, values, protocols),
        protocols=MappingProxyType(protocols),
        quorum_voters=MappingProxyType(voters),
        quorum_bootstrap_servers=tuple(map(parse_address, _items(values, "controller.quorum.bootstrap.servers"))),
        log_dirs=log_dirs,
        metadata_log_dir=log_dirs[0] if metadata_dir is None else _directories([str(metadata_dir)])[0],
        max_connections_per_ip_overrides=MappingProxyType(_connection_counts(values)),
    )


def _parse(given_settings: Mapping[str, GivenSetting]) -> dict[str, Value]:
    """Return the values of all settings, with defaults. Raise InvalidSetting or SettingConflict."""
    for name, given in given_settings.items():
        if reference := _provider_reference(given.text):
            raise SettingConflict(
                name,
                f"{reference[0]} refers to a config provider, which Ottla does not support: write the value itself, or"
                " expand it before the node starts",
            )
    known = {**broker_settings(), **ottla_settings()}
    values = {name: known[name].parse(given.text) for name, given in given_settings.items() if name in known}
    if "node.id" in values:  # node.id and broker.id are two names of one setting
        values.setdefault("broker.id", values["node.id"])
    elif "broker.id" in values:
        values["node.id"] = known["node.id"].check(values["broker.id"], given_as="broker.id")
    for name, meaning in _REQUIRED.items():
        if name not in values:
            raise SettingConflict(name, f"missing; it must be {meaning}")
    return {name: setting.default_value for name, setting in known.items()} | values


def _listener_settings(given_settings: Mapping[str, GivenSetting]) -> Mapping[str, Mapping[str, str]]:
    """Return the settings with a listener prefix, by listener. Prefixes have listener names in lower case."""
    by_listener: dict[str, dict[str, str]] = {}
    for name, given in given_settings.items():
        if name.startswith(LISTENER_PREFIX):
            listener, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
            by_listener.setdefault(listener.upper(), {})[setting] = given.text
    return MappingProxyType(by_listener)


def _inter_broker_listener(
    given_settings: Mapping[str, GivenSetting], values: Mapping[str, Value], protocols: Mapping[str, SecurityProtocol]
) -> str:
    """Return the inter-broker listener, given by its name or by its security protocol."""
    name = values["inter.broker.listener.name"]
    if name is None:
        return parse_protocol("security.inter.broker.protocol", str(values["security.inter.broker.protocol"])).name
    setting = "inter.broker.listener.name"
    if "security.inter.broker.protocol" in given_settings:
        raise SettingConflict(setting, "cannot be set together with security.inter.broker.protocol: remove one of them")
    if str(name).upper() not in protocols:
        raise SettingConflict(setting, f"{name} is not in listener.security.protocol.map")
    return str(name).upper()


def _voters(texts: Iterable[str]) -> dict[int, Address]:
    voters = {}
    for text in texts:
        voter_id, _, address = text.partition("@")
        voters[int(voter_id)] = parse_address(address.rstrip("@"))
    return voters


def _connection_counts(values: Mapping[str, Value]) -> dict[str, int]:
    name = "max.connections.per.ip.overrides"
    counts = {}
    for host, count in parse_pairs(name, str(values[name])).items():
        if not _integer(count):
            raise SettingConflict(name, f"{count!r} for {host} is not a number of connections")
        counts[host] = int(count)
    return counts


def _directories(texts: Iterable[str]) -> tuple[str, ...]:
    """Return absolute paths without duplicates."""
    return tuple(dict.fromkeys(str(Path(text).absolute()) for text in texts))


def _items(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values[name]
    assert value is None or isinstance(value, tuple), f"{name} is not a list"
    return value or ()
