"""What a node runs with: every setting typed, and those that take more than one to understand put together.

Made by `node/settings_loader.py`, which checks all of it first.
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
    """A configuration that holds together. `settings["any.name"]` is the typed value of any broker setting."""

    given: Mapping[str, str]
    """Name → text, as in the file or on the command line: nothing that has its default is here."""
    warnings: tuple[str, ...]
    """What an operator should look at, though a node can run with it."""
    values: Mapping[str, Value] = field(repr=False)
    listener_settings: Mapping[str, Mapping[str, str]]
    """Listener's name → what is set for it alone (`listener.name.<name>.*`), without the prefix."""
    is_own_quorum: bool
    """Without a file, and with no other controllers named: the node is the whole cluster."""

    node_id: int
    roles: frozenset[ProcessRole]
    listeners: tuple[ListenerEndpoint, ...]
    """All of them, those for controllers too."""
    advertised: tuple[ListenerEndpoint, ...]
    """What clients are told; an empty host stands for the machine's name."""
    advertised_controllers: tuple[ListenerEndpoint, ...]
    """What other nodes are told of this controller."""
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    protocols: Mapping[str, int]
    """Listener's name → security protocol, also for listeners of other nodes."""
    quorum_voters: Mapping[int, Address]
    """Empty if the quorum's members are kept in the metadata log."""
    quorum_bootstrap_servers: tuple[Address, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    max_connections_per_ip_overrides: Mapping[str, int]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), f"{name} is no number"
        return value

    def text(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str), f"{name} is no text"
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
        return tuple(each for each in self.listeners if each.name in self.controller_listener_names)

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that the node writes to, each once, in the order of their names."""
        return tuple(sorted({*self.log_dirs, self.metadata_log_dir}))

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """The log directories that are to take no new replicas (KIP-1066)."""
        named = self.values["cordoned.log.dirs"]
        assert isinstance(named, tuple)
        return frozenset(self.log_dirs if "*" in named else (str(Path(each).absolute()) for each in named))

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
        """How long brokers keep records; -1 is for ever. The finest unit that was given counts."""
        for name, unit_ms in _MS_PER_UNIT.items():
            if self.values[name] is not None:
                return max(self.number(name) * unit_ms, -1)
        raise AssertionError("hours have a default")

    def limits_of(self, listener: str) -> ConnectionLimits:
        """What the connections of one listener are held to: as a whole, and by what is set for it alone."""
        limits, own = self.limits, self.listener_settings.get(listener, {})
        for limit, name in LISTENER_LIMITS.items():
            if name in own:
                setattr(limits, limit, int(own[name]))
        return limits

    @property
    def limits(self) -> ConnectionLimits:
        """What connections are held to."""
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
