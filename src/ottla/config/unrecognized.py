"""Names in a configuration file that are no setting of a broker: which of them deserve a word."""

import functools
from collections.abc import Sequence
from typing import Final

from ottla.config.settings.catalogue import broker_settings, suggest_name
from ottla.config.settings.ottla_settings import PREFIX, ottla_settings

# Settings of what Kafka loads by name: its authorizer, its remote storage, config providers, metrics reporters.
_OF_PLUGINS: Final = ("super.users", "allow.everyone.if.no.acl.found")
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
"""What Kafka had before 4.0; a dot at the end stands for all names that begin so."""


def warning_about(name: str, origin: str) -> str | None:
    """What to tell an operator about a name, if anything."""
    if name in broker_settings() or name in ottla_settings() or name in _OF_PLUGINS or name.startswith(_PREFIXES):
        return None
    if any(name == old or (old.endswith(".") and name.startswith(old)) for old in _REMOVED):
        return f"{origin}: {name} was removed in Kafka 4.0 and is ignored"
    guess = suggest_name(name, ottla_settings() if name.startswith(PREFIX) else _public_names())
    hint = f"; did you mean {guess}?" if guess else ""
    return f"{origin}: {name} is not a setting and is ignored{hint}"


@functools.cache
def _public_names() -> Sequence[str]:
    return [name for name, setting in broker_settings().items() if not setting.internal]
