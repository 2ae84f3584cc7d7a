"""The settings that only Ottla has. Their names begin with `ottla.`."""

import functools
from collections.abc import Mapping
from typing import Final

from ottla.config.settings.setting import Importance, Setting, UpdateMode
from ottla.config.settings.values import SettingType

PREFIX: Final = "ottla."
DISCONNECT_GRACE_MS: Final = "ottla.broker.disconnect.grace.ms"
METRICS_LISTENER: Final = "ottla.metrics.listener"
METRICS_PARTITIONS: Final = "ottla.metrics.partitions"
METRICS_CLIENTS: Final = "ottla.metrics.clients"


@functools.cache
def ottla_settings() -> Mapping[str, Setting]:
    """Return Ottla's own settings by name."""
    return {
        setting.name: setting
        for setting in (
            _setting(
                DISCONNECT_GRACE_MS,
                SettingType.INT,
                "500",
                "[-1,...]",
                (
                    "How long a broker may stay silent after its connection to the active controller breaks, "
                    "before it is fenced; -1 waits for the whole broker.session.timeout.ms. Apache Kafka's "
                    "brokers get at least twice broker.heartbeat.interval.ms."
                ),
            ),
            _setting(
                METRICS_LISTENER,
                SettingType.LIST,
                "",
                "host:port items",
                "Where metrics and health checks are served over HTTP. Without it they are not served.",
            ),
            _setting(
                METRICS_PARTITIONS,
                SettingType.BOOLEAN,
                "false",
                "any",
                "Whether metrics include the log of each partition.",
            ),
            _setting(
                METRICS_CLIENTS,
                SettingType.INT,
                "1000",
                "[0,...]",
                (
                    "The number of clients whose pushed metrics (KIP-714) are kept and shown. With 0, or without "
                    "ottla.metrics.listener, clients are not asked to push metrics."
                ),
            ),
        )
    }


def _setting(name: str, kind: SettingType, default: str, valid: str, description: str) -> Setting:
    return Setting(name, kind, default, valid, Importance.LOW, UpdateMode.READ_ONLY, description=description)
