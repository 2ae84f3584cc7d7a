"""The configuration of a node, with typed settings and values that combine several settings.

`node/settings_loader.py` creates it, after it has checked all settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from ottla.config.listeners import Address, ConnectionLimits, ListenerEndpoint
from ottla.config.settings.values import Value
from ottla.protocol.features import FeatureRange, supported_features

LISTENER_LIMITS: Final = {
    "max_listener_connections": "max.connections",
    "max_listener_creation_rate": "max.connection.creation.rate",
}
_MS_PER_UNIT: Final = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}


class ProcessRole(StrEnum):
    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """A consistent configuration. `settings["any.name"]` is the typed value of any broker setting."""

    given: Mapping[str, str]
    """The settings in the file or on the command line, as text by name, without defaults."""
    warnings: tuple[str, ...]
    """Warnings for the operator. The node can run with them."""
    values: Mapping[str, Value] = field(repr=False)
    listener_settings: Mapping[str, Mapping[str, str]]
    """The settings for single listeners (`listener.name.<name>.*`), without the prefix, by listener name."""
    is_own_quorum: bool
    """Whether the node has neither a configuration file nor a configured quorum, so that it is the whole cluster."""

    node_id: int
    roles: frozenset[ProcessRole]
    listeners: tuple[ListenerEndpoint, ...]
    """All listeners, including those for controllers."""
    advertised: tuple[ListenerEndpoint, ...]
    """The listeners advertised to clients. An empty host means the machine's name."""
    advertised_controllers: tuple[ListenerEndpoint, ...]
    """The addresses of this controller for other nodes."""
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    protocols: Mapping[str, int]
    """The security protocol by listener name, including listeners of other nodes."""
    quorum_voters: Mapping[int, Address]
    """The static voters. Empty if the voters are stored in the metadata log."""
    quorum_bootstrap_servers: tuple[Address, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    max_connections_per_ip_overrides: Mapping[str, int]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), f"{name} is not a number"
        return value

    def text(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str), f"{name} is not text"
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), f"{name} is neither true nor false"
        return value

    @property
    def is_broker(self) -> bool:
        return ProcessRole.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return ProcessRole.CONTROLLER in self.roles

    @property
    def controller_listeners(self) -> tuple[ListenerEndpoint, ...]:
        return tuple(listener for listener in self.listeners if listener.name in self.controller_listener_names)

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that the node writes to, sorted, without duplicates."""
        return tuple(sorted({*self.log_dirs, self.metadata_log_dir}))

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """The log directories that must not receive new replicas (KIP-1066)."""
        paths = self.values["cordoned.log.dirs"]
        assert isinstance(paths, tuple)
        return frozenset(self.log_dirs if "*" in paths else (str(Path(path).absolute()) for path in paths))

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        return supported_features(unstable=self.flag("unstable.feature.versions.enable"))

    @property
    def rack(self) -> str | None:
        return self.text("broker.rack")

    @property
    def num_io_threads(self) -> int:
        return self.number("num.io.threads")

    @property
    def queued_max_requests(self) -> int:
        return self.number("queued.max.requests")

    @property
    def fetch_max_bytes(self) -> int:
        return self.number("fetch.max.bytes")

    @property
    def fetch_session_slots(self) -> int:
        return self.number("max.incremental.fetch.session.cache.slots")

    @property
    def retention_ms(self) -> int:
        """The retention time of records, or -1 for no limit. The setting with the finest unit takes precedence."""
        for name, unit_ms in _MS_PER_UNIT.items():
            if self.values[name] is not None:
                return max(self.number(name) * unit_ms, -1)
        raise AssertionError("hours have a default")

    def limits_of(self, listener: str) -> ConnectionLimits:
        """Return the limits of a listener's connections: the common ones, and those set for this listener."""
        limits, own = self.limits, self.listener_settings.get(listener, {})
        for limit, name in LISTENER_LIMITS.items():
            if name in own:
                setattr(limits, limit, int(own[name]))
        return limits

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of connections."""
        return ConnectionLimits(
            max_request_bytes=self.number("socket.request.max.bytes"),
            max_idle_ms=self.number("connections.max.idle.ms"),
            max_connections=self.number("max.connections"),
            max_connections_per_ip=self.number("max.connections.per.ip"),
            max_connections_per_ip_overrides=dict(self.max_connections_per_ip_overrides),
            max_creation_rate=self.number("max.connection.creation.rate"),
            send_buffer_bytes=self.number("socket.send.buffer.bytes"),
            receive_buffer_bytes=self.number("socket.receive.buffer.bytes"),
        )
