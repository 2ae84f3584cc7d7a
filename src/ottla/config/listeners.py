"""Where a node listens, what it tells others about that, and who may speak to it how.

`listeners` are the sockets; `advertised.listeners` what clients and other nodes are told, the listeners themselves if
it is not set. Listeners named in `controller.listener.names` belong to the quorum and are not told to clients. A
listener's name says how it is spoken to, by way of `listener.security.protocol.map`.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


@dataclass(slots=True)
class ConnectionLimits:
    """What connections are held to. May be replaced while running."""

    max_request_bytes: int = 104_857_600
    max_idle_ms: int = 600_000
    max_connections: int = 2_147_483_647
    max_listener_connections: int = 2_147_483_647
    """Of this listener alone, besides the limit for all of them."""
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    max_creation_rate: int = 2_147_483_647
    """New connections a second, over all listeners; above that they wait in the backlog."""
    max_listener_creation_rate: int = 2_147_483_647
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    """-1: as the operating system thinks best."""


class SecurityProtocol(IntEnum):
    """How a listener is spoken to."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


_endpoint = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)").fullmatch
_address = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)").fullmatch
_comma = re.compile(r"\s*,\s*")
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - compared with, not bound to
_MAX_PORT = 65_535


class SettingConflict(Exception):
    """A setting does not go with the others, or has a form that its type does not tell of: which one, and why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Address(NamedTuple):
    """A host and a port; shown with the brackets that an IPv6 address needs."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenerEndpoint(NamedTuple):
    """One listener. Without a host it listens on all interfaces, and is told to others under the machine's name."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


def parse_address(text: str) -> Address:
    """An address that the catalogue's check let pass."""
    found = _address(text)
    assert found is not None, f"{text!r} is no address"
    return Address(found[1], int(found[2]))


def parse_pairs(name: str, text: str) -> dict[str, str]:
    """`a:1,b:2` as a dictionary; a key may have colons of its own, as IPv6 addresses do."""
    pairs = {}
    for item in _comma.split(text) if text else ():
        key, colon, value = item.rpartition(":")
        if not colon:
            raise SettingConflict(name, f"expected pairs like name:value with commas between, found {item!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_protocol(name: str, text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[text.upper()]
    except KeyError:
        known = ", ".join(protocol.name for protocol in SecurityProtocol)
        raise SettingConflict(name, f"{text!r} is no security protocol; there are {known}") from None


def protocol_map(
    text: str, *, is_given: bool, controller_names: Sequence[str], listeners: Sequence[str]
) -> dict[str, SecurityProtocol]:
    """Listener → how it is spoken to.

    When nobody gave a map, controllers are spoken to in plain text, unless something on this node is secured: then the
    operator has to say what the controllers are.
    """
    setting = "listener.security.protocol.map"
    protocols = {name.upper(): parse_protocol(setting, value) for name, value in parse_pairs(setting, text).items()}
    if is_given:
        return protocols
    names = [*controller_names, *(listener.partition("://")[0].upper() for listener in listeners)]
    if not any(name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL") for name in names):
        protocols |= dict.fromkeys(controller_names, SecurityProtocol.PLAINTEXT)
    return protocols


def parse_listeners(
    setting: str, texts: Sequence[str], protocols: Mapping[str, SecurityProtocol], *, distinct_ports: bool
) -> tuple[ListenerEndpoint, ...]:
    """The listeners of a setting; raises WrongSetting for one that cannot be, and for two that are in each other's way.

    Port 0 lets the system choose, so that it may be there more than once.
    """
    endpoints = tuple(_parse_listener(setting, text, protocols) for text in texts)
    names = [endpoint.name for endpoint in endpoints]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingConflict(
            setting, f"each listener must have a name of its own, but {twice} is there more than once"
        )
    if distinct_ports:
        for port in {endpoint.port for endpoint in endpoints} - {0}:
            _check_port(setting, port, [endpoint.host for endpoint in endpoints if endpoint.port == port])
    return endpoints


def _parse_listener(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> ListenerEndpoint:
    found = _endpoint(text)
    if found is None:
        raise SettingConflict(setting, f"{text!r} is not a listener; one looks like PLAINTEXT://host:9092")
    name, host, port = found[1].upper(), found[2], int(found[3])
    if not 0 <= port <= _MAX_PORT:
        raise SettingConflict(setting, f"{text!r} has port {port}; a port is a number from 0 to {_MAX_PORT}")
    if name not in protocols:
        hint = f"add {name}:PLAINTEXT, or what it is, to listener.security.protocol.map"
        raise SettingConflict(setting, f"listener {name} has no security protocol: {hint}")
    return ListenerEndpoint(name, host, port, protocols[name])


def _check_port(setting: str, port: int, hosts: Sequence[str]) -> None:
    """Two listeners may share a port only as an IPv4 and an IPv6 address."""
    if len(hosts) > 1 and sorted(map(_ip_version, hosts)) != [4, 6]:
        raise SettingConflict(
            setting,
            f"port {port} is there {len(hosts)} times; listeners need ports of their own, unless one of two has an"
            " IPv4 address and the other an IPv6 address",
        )


def _ip_version(host: str) -> int:
    """4 or 6, and 0 for a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def advertised_controllers(
    names: Sequence[str],
    listeners: Sequence[ListenerEndpoint],
    advertised: Sequence[ListenerEndpoint],
    voters: Mapping[int, Address],
    node_id: int,
) -> tuple[ListenerEndpoint, ...]:
    """Where other nodes find this controller.

    A listener on all interfaces has no address of its own to tell: what the quorum's voters say of this node is.
    """
    told = {endpoint.name: endpoint for endpoint in advertised}
    bound = {endpoint.name: endpoint for endpoint in listeners}
    found = []
    for place, name in enumerate(names):
        endpoint = told.get(name)
        if endpoint is None and (endpoint := bound.get(name)) and endpoint.host in ("", ALL_INTERFACES):
            # Voters are known under the first controller listener's name.
            voter = voters.get(node_id) if place == 0 else None
            host, port = voter or ("", endpoint.port)
            endpoint = endpoint._replace(host=host, port=port)
        if endpoint is not None:
            found.append(endpoint)
    return tuple(found)
