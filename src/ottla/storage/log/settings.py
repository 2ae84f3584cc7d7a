"""The topic settings that a partition's log uses, as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, Self

from ottla.config.settings.topics import NO_SETTINGS, EffectiveSetting, effective_topic_settings
from ottla.protocol.wire.batch import TimestampType
from ottla.protocol.wire.compression import Compression

_FOREVER: Final = (1 << 63) - 1
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE, "LogAppendTime": TimestampType.LOG_APPEND}
_COMPRESSIONS: Final = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of one log. Fields have the names of their settings, and Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = _FOREVER
    flush_ms: int = _FOREVER
    retention_bytes: int = -1
    """-1: no limit."""
    retention_ms: int = 604_800_000
    """-1: no limit."""
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE
    message_timestamp_before_max_ms: int = _FOREVER
    message_timestamp_after_max_ms: int = 3_600_000
    compression: Compression | None = None
    """None: keep the producer's compression."""
    compression_level: int | None = None
    """None if the codec has no levels."""
    compact: bool = False
    delete: bool = True
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _FOREVER
    delete_retention_ms: int = 86_400_000
    preallocate: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, EffectiveSetting]) -> Self:
        """Build from all settings of a topic, as `effective_topic_settings` returns them."""
        values: dict[str, Any] = {name.replace(".", "_"): setting.value for name, setting in settings.items()}
        if values["internal_segment_bytes"] is not None:  # Kafka's own tests set this for small segments
            values["segment_bytes"] = values["internal_segment_bytes"]
        values["message_timestamp_type"] = _TIMESTAMP_TYPES[values["message_timestamp_type"]]
        values["compression"] = _COMPRESSIONS[values["compression_type"]]
        values["compression_level"] = values.get(f"compression_{values['compression_type']}_level")
        values["compact"] = "compact" in values["cleanup_policy"]
        values["delete"] = "delete" in values["cleanup_policy"]
        values["unclean_leader_election"] = values["unclean_leader_election_enable"]
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    @property
    def preallocated_bytes(self) -> int:
        """The size of a new, empty segment's file."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def max_segment_ms(self) -> int:
        """The age at which the active segment is rolled. Records that are due for compaction must not be in it."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


DEFAULT_LOG_SETTINGS: Final = LogSettings()


def log_settings(
    topic: Mapping[str, str],
    broker: Mapping[str, str] = NO_SETTINGS,
    *,
    dynamic_broker: Mapping[str, str] = NO_SETTINGS,
    dynamic_default: Mapping[str, str] = NO_SETTINGS,
) -> LogSettings:
    """Return the settings for the logs of a topic, from the layers of `effective_topic_settings`."""
    return _log_settings(*(frozenset(layer.items()) for layer in (topic, broker, dynamic_broker, dynamic_default)))


_Given = frozenset[tuple[str, str]]


@lru_cache(maxsize=128)
def _log_settings(topic: _Given, broker: _Given, dynamic_broker: _Given, dynamic_default: _Given) -> LogSettings:
    """Cache the settings: thousands of topics share a few objects."""
    return LogSettings.of(
        effective_topic_settings(
            dict(topic), dict(broker), dynamic_broker=dict(dynamic_broker), dynamic_default=dict(dynamic_default)
        )
    )
