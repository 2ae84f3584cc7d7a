"""Warnings about names in a configuration file that are not settings of a broker."""

import functools
from collections.abc import Sequence
from typing import Final

from ottla.config.settings.catalogue import broker_settings, suggest_name
from ottla.config.settings.ottla_settings import PREFIX, ottla_settings

# Settings of classes that Kafka loads by name: authorizer, remote storage, config providers, metrics reporters.
_PLUGIN_SETTINGS: Final = ("super.users", "allow.everyone.if.no.acl.found")
_PREFIXES: Final = ("listener.name.", "config.providers.", "rsm.config.", "rlmm.config.", "metrics.jmx.")
_REMOVED: Final = (
    "advertised.host.name",
    "advertised.port",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "delegation.token.master.key",
    "eligible.leader.replicas.enable",
    "group.coordinator.new.enable",
    "host.name",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "password.encoder.",
    "port",
    "reserved.broker.max.id",
    "zookeeper.",
)
"""Settings that Kafka 4.0 removed. A dot at the end means a prefix."""


def warning_about(name: str, origin: str) -> str | None:
    """Return a warning about a name that is not a setting, or None if the name is expected."""
    if name in broker_settings() or name in ottla_settings() or name in _PLUGIN_SETTINGS or name.startswith(_PREFIXES):
        return None
    if any(name == old or (old.endswith(".") and name.startswith(old)) for old in _REMOVED):
        return f"{origin}: {name} was removed in Kafka 4.0 and is ignored"
    guess = suggest_name(name, ottla_settings() if name.startswith(PREFIX) else _public_names())
    hint = f"; did you mean {guess}?" if guess else ""
    return f"{origin}: {name} is not a setting and is ignored{hint}"


@functools.cache
def _public_names() -> Sequence[str]:
    return [name for name, setting in broker_settings().items() if not setting.internal]
