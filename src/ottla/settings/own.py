"""The settings that are Ottla's own and no Kafka has. Their names begin with `ottla.`."""

import functools
from collections.abc import Mapping
from typing import Final

from ottla.settings.setting import Importance, Setting, Update
from ottla.settings.values import SettingType

PREFIX: Final = "ottla."
DISCONNECT_GRACE_MS: Final = "ottla.broker.disconnect.grace.ms"
METRICS_LISTENER: Final = "ottla.metrics.listener"
METRICS_PARTITIONS: Final = "ottla.metrics.partitions"
METRICS_CLIENTS: Final = "ottla.metrics.clients"


@functools.cache
def own_settings() -> Mapping[str, Setting]:
    """All of them by name."""
    return {
        setting.name: setting
        for setting in (
            # How long a broker whose connection to the controller broke may be silent before it is fenced; -1: for its
            # whole session. Brokers that are no Ottla have twice broker.heartbeat.interval.ms at least.
            _setting(DISCONNECT_GRACE_MS, SettingType.INT, "500", "[-1,...]"),
            # Where metrics and health are served over HTTP, as host:port; nowhere by default.
            _setting(METRICS_LISTENER, SettingType.LIST, "", "host:port items"),
            # Whether metrics tell of each partition's log; with many partitions that is much to read.
            _setting(METRICS_PARTITIONS, SettingType.BOOLEAN, "false", "any"),
            # Of how many clients the metrics that they push are shown; 0: clients are not told that they can push any.
            # Where no metrics are served, they are not told either.
            _setting(METRICS_CLIENTS, SettingType.INT, "1000", "[0,...]"),
        )
    }


def _setting(name: str, kind: SettingType, default: str, valid: str) -> Setting:
    return Setting(name, kind, default, valid, Importance.LOW, Update.READ_ONLY)
