"""The listeners of a node: sockets, advertised addresses and security protocols.

`listeners` are the sockets. `advertised.listeners` are the addresses that clients and other nodes receive, by default
those of the listeners. Listeners in `controller.listener.names` belong to the quorum and are not advertised to clients.
`listener.security.protocol.map` maps the name of a listener to its security protocol.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


@dataclass(slots=True)
class ConnectionLimits:
    """The limits of connections. They can be replaced while the node runs."""

    max_request_bytes: int = 104_857_600
    max_idle_ms: int = 600_000
    max_connections: int = 2_147_483_647
    max_listener_connections: int = 2_147_483_647
    """For this listener alone, in addition to the limit for all listeners."""
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    max_creation_rate: int = 2_147_483_647
    """New connections per second over all listeners. Connections above the rate wait in the backlog."""
    max_listener_creation_rate: int = 2_147_483_647
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    """-1 means the default of the operating system."""


class SecurityProtocol(IntEnum):
    """The security protocol of a listener."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


_endpoint = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)").fullmatch
_address = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)").fullmatch
_comma = re.compile(r"\s*,\s*")
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - only compared, not bound
_MAX_PORT = 65_535


class SettingConflict(Exception):
    """A setting conflicts with others, or has an invalid form that its type cannot express."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Address(NamedTuple):
    """A host and a port. An IPv6 address is shown in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenerEndpoint(NamedTuple):
    """A listener. Without a host it listens on all interfaces and is advertised under the machine's name."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


def parse_address(text: str) -> Address:
    """Parse an address that has passed the check of the catalogue."""
    match = _address(text)
    assert match is not None, f"{text!r} is not an address"
    return Address(match[1], int(match[2]))


def parse_pairs(name: str, text: str) -> dict[str, str]:
    """Parse `a:1,b:2` into a dictionary. A key may contain colons, as IPv6 addresses do."""
    pairs = {}
    for item in _comma.split(text) if text else ():
        key, colon, value = item.rpartition(":")
        if not colon:
            raise SettingConflict(name, f"{item!r} is not a pair: write name:value pairs, separated by commas")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_protocol(name: str, text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[text.upper()]
    except KeyError:
        protocols = ", ".join(protocol.name for protocol in SecurityProtocol)
        raise SettingConflict(name, f"{text!r} is not a security protocol: use one of {protocols}") from None


def protocol_map(
    text: str, *, is_given: bool, controller_names: Sequence[str], listeners: Sequence[str]
) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener name.

    Without a configured map, controller listeners use PLAINTEXT, unless another listener of the node is secured: then
    the operator must configure their protocol.
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
    """Parse the listeners of a setting. Raise SettingConflict for an invalid listener, and for two that conflict.

    Port 0 lets the system choose a port, so several listeners may have it.
    """
    endpoints = tuple(_parse_listener(setting, text, protocols) for text in texts)
    names = [endpoint.name for endpoint in endpoints]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise SettingConflict(
            setting, f"the listener name {duplicate} is used more than once: each listener needs its own name"
        )
    if distinct_ports:
        for port in {endpoint.port for endpoint in endpoints} - {0}:
            _check_port(setting, port, [endpoint.host for endpoint in endpoints if endpoint.port == port])
    return endpoints


def _parse_listener(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> ListenerEndpoint:
    match = _endpoint(text)
    if match is None:
        raise SettingConflict(setting, f"{text!r} is not a listener: write it like PLAINTEXT://host:9092")
    name, host, port = match[1].upper(), match[2], int(match[3])
    if not 0 <= port <= _MAX_PORT:
        raise SettingConflict(setting, f"the port of {text!r} must be from 0 to {_MAX_PORT}")
    if name not in protocols:
        hint = f"add it to listener.security.protocol.map, for example as {name}:PLAINTEXT"
        raise SettingConflict(setting, f"listener {name} has no security protocol: {hint}")
    return ListenerEndpoint(name, host, port, protocols[name])


def _check_port(setting: str, port: int, hosts: Sequence[str]) -> None:
    """Raise SettingConflict if listeners share a port, unless they are an IPv4 and an IPv6 address."""
    if len(hosts) > 1 and sorted(map(_ip_version, hosts)) != [4, 6]:
        raise SettingConflict(
            setting,
            f"{len(hosts)} listeners use port {port}: give each its own port. Only an IPv4 and an IPv6 address can"
            " share one",
        )


def _ip_version(host: str) -> int:
    """Return 4 or 6, or 0 for a host name."""
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
    """Return the addresses at which other nodes reach this controller.

    A listener on all interfaces has no address to advertise. Its address is the one in the quorum's voters.
    """
    advertised_by_name = {endpoint.name: endpoint for endpoint in advertised}
    bound = {endpoint.name: endpoint for endpoint in listeners}
    endpoints = []
    for index, name in enumerate(names):
        endpoint = advertised_by_name.get(name)
        if endpoint is None and (endpoint := bound.get(name)) and endpoint.host in ("", ALL_INTERFACES):
            # The voters' addresses are those of the first controller listener.
            voter = voters.get(node_id) if index == 0 else None
            host, port = voter or ("", endpoint.port)
            endpoint = endpoint._replace(host=host, port=port)
        if endpoint is not None:
            endpoints.append(endpoint)
    return tuple(endpoints)
