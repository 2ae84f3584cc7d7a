"""Dynamic broker settings (KIP-226): checks changes, and applies stored ones while the node runs.

Settings of this broker override cluster-wide defaults, which override the file. A change is checked before the
controller stores it, and applied when the metadata image has it. A stored value that is invalid, perhaps written by
another release, is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from immutables import Map

from ottla.broker.handlers.setting_entries import layers_of
from ottla.config.listeners import SettingConflict
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.brokers import BrokerLayers, broker_setting, listener_override
from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.setting import InvalidSetting, UpdateMode
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType
from ottla.node.settings_loader import rebuild_settings
from ottla.protocol.errors import InvalidRequest
from ottla.replication.directory_moves import UNLIMITED
from ottla.storage.log.settings import LogSettings, log_settings

logger = logging.getLogger(__name__)

OnChange = Callable[[NodeSettings, NodeSettings], None]
"""Called with the previous and the current settings."""

_LISTENER_ONLY: Final = frozenset(
    f"ssl.{name}"
    for name in (
        *("keystore.type", "keystore.location", "keystore.password", "key.password", "keystore.certificate.chain"),
        *("keystore.key", "truststore.type", "truststore.location", "truststore.password", "truststore.certificates"),
    )
)
"""Settings that can only be changed for one listener at a time."""
_CLUSTER_WIDE: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Listener settings that can also be set for all brokers."""
_THREADS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Thread counts: one change may at most halve or double them, as in Kafka."""
_REPORTERS: Final = ("org.apache.kafka.common.metrics.JmxReporter",)
_SAME_AS_TOTAL: Final = -2
_MOVE_BYTES: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class DynamicSettings:
    """The settings of a running node."""

    def __init__(self, settings: NodeSettings) -> None:
        self._file = settings
        self.current = settings
        """The current settings."""
        self.on_change: list[OnChange] = []
        self.checks: list[Callable[[NodeSettings], None]] = []
        """Each raises SettingConflict for settings that a part of the node could not apply."""
        self._layers: tuple[object, BrokerLayers] | None = None
        """The last result of `layers`, and the configs that it is for."""
        self._log_settings: dict[Map[str, str], LogSettings] = {}
        """The results of `log_settings` for the same configs, by the topic's own settings."""

    def layers(self, image: Image) -> BrokerLayers:
        """Return this broker's settings by source. Cached, because creating many topics needs it for each."""
        if self._layers is None or self._layers[0] is not image.configs:
            self._layers = image.configs, layers_of(image, self._file.node_id, self._file.given)
            self._log_settings.clear()
        return self._layers[1]

    def log_settings(self, image: Image, topic: str) -> LogSettings:
        """Return the log settings of a topic on this broker."""
        layers, own = self.layers(image), image.topic_config(topic)
        settings = self._log_settings.get(own)
        if settings is None:
            settings = self._log_settings[own] = log_settings(
                own, layers.static, dynamic_broker=layers.broker, dynamic_default=layers.default
            )
        return settings

    def move_bytes_per_s(self, image: Image) -> int:
        """Return the limit for moves between log directories, which is only a dynamic setting."""
        layers = self.layers(image)
        given = layers.broker.get(_MOVE_BYTES) or layers.default.get(_MOVE_BYTES)
        return max(int(given), 1) if given is not None else UNLIMITED

    def apply(self, changes: Changes) -> None:
        """Apply the changed settings of an image."""
        if self._layers is not None and self._layers[0] is not changes.new.configs:
            # Drop the cache: the previous image's configs hold the settings of topics deleted since.
            self._layers = None
            self._log_settings.clear()
        for resource in {change.key for change in changes.configs}:
            if resource.type == ResourceType.BROKER and resource.name in ("", str(self._file.node_id)):
                self._adopt(changes.new)
                return

    def check(self, image: Image, broker: str, settings: Mapping[str, str]) -> None:
        """Raise InvalidRequest unless this node could run with these as all dynamic settings of a broker, or of all."""
        try:
            _check_names(settings, of_one=bool(broker))
            layers = self.layers(image)
            layers = layers._replace(broker=settings) if broker else layers._replace(default=settings)
            rebuilt = rebuild_settings(self._file, layers.combined())
            self._check_step(rebuilt)
            for check in self.checks:
                check(rebuilt)
        except (InvalidSetting, SettingConflict) as wrong:
            raise InvalidRequest(str(wrong)) from None

    def _adopt(self, image: Image) -> None:
        try:
            new = rebuild_settings(self._file, self.layers(image).combined())
        except (InvalidSetting, SettingConflict) as wrong:
            logger.error("rejected a dynamic config update; keeping the current settings: %s", wrong)
            return
        old, self.current = self.current, new
        changed = sorted(name for name, value in new.values.items() if value != old.values[name])
        if changed:
            logger.info("dynamic config update changed %s", ", ".join(changed))
        for act in self.on_change:
            act(old, new)

    def _check_step(self, new: NodeSettings) -> None:
        """Check limits on the size of a change and other rules for dynamic settings."""
        for name in _THREADS:
            before, after = self.current.number(name), new.number(name)
            if after != before:
                _check_threads(name, before, after)
        _check_local_retention(new)
        if new.number("max.connection.creation.rate") <= 0:
            raise SettingConflict("max.connection.creation.rate", "must be at least 1")
        reporters = new["metric.reporters"]
        if isinstance(reporters, tuple) and (
            unknown := [reporter for reporter in reporters if reporter not in _REPORTERS]
        ):
            raise SettingConflict(
                "metric.reporters", f"{', '.join(unknown)} is not supported; use {', '.join(_REPORTERS)} or none"
            )


def _check_names(settings: Mapping[str, str], *, of_one: bool) -> None:
    fixed = [name for name in settings if name in broker_settings() and _update(name) in (None, UpdateMode.READ_ONLY)]
    if fixed:
        raise InvalidRequest(f"Cannot update these configs dynamically: {_listed(fixed)}")
    bare = [name for name in settings if name in _LISTENER_ONLY]
    if bare:
        raise InvalidRequest(
            "These security configs can be dynamically updated only per-listener using the listener prefix:"
            f" {_listed(bare)}"
        )
    for name, value in settings.items():
        setting = broker_setting(name)
        if setting is not None:
            setting.parse(value)
    own = [name for name in settings if _is_per_broker(name)]
    if own and not of_one:
        raise InvalidRequest(
            f"Cannot update these configs at default cluster level, broker id must be specified: {_listed(own)}"
        )


def _is_per_broker(name: str) -> bool:
    if override := listener_override(name):
        return override[1] not in _CLUSTER_WIDE
    return _update(name) is UpdateMode.PER_BROKER


def _update(name: str) -> UpdateMode | None:
    setting = broker_settings().get(name)
    return None if setting is None else setting.update


def _check_threads(name: str, before: int, after: int) -> None:
    problem = f"Dynamic thread count update validation failed for {name}={after}, value should"
    if after <= 0:
        raise InvalidRequest(f"{problem} be at least 1")
    if after < before // 2:
        raise InvalidRequest(f"{problem} be at least half the current value {before}")
    if after > before * 2:
        raise InvalidRequest(f"{problem} not be greater than double the current value {before}")


def _check_local_retention(new: NodeSettings) -> None:
    totals = (
        ("log.local.retention.ms", "log.retention.ms", new.retention_ms),
        ("log.local.retention.bytes", "log.retention.bytes", new.number("log.retention.bytes")),
    )
    for name, total, most in totals:
        local = new.number(name)
        if most < 0 or local == _SAME_AS_TOTAL:
            continue
        if local == -1 or local > most:
            raise SettingConflict(name, f"must not be more than {total}, which is {most}")


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
