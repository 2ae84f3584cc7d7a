"""The settings of a log, built from those of its topic."""

import dataclasses

import pytest

from ottla.config.settings.topics import effective_topic_settings
from ottla.protocol.wire.batch import TimestampType
from ottla.protocol.wire.compression import Compression
from ottla.storage.log.settings import DEFAULT_LOG_SETTINGS, LogSettings


def of(**topic: str) -> LogSettings:
    return LogSettings.of(effective_topic_settings({name.replace("_", "."): text for name, text in topic.items()}))


def test_the_defaults_are_kafkas() -> None:
    assert of() == DEFAULT_LOG_SETTINGS


def test_every_field_follows_its_setting() -> None:
    settings = of(
        segment_bytes="1048577",
        segment_ms="2",
        segment_jitter_ms="3",
        segment_index_bytes="4",
        index_interval_bytes="5",
        flush_messages="6",
        flush_ms="7",
        retention_bytes="8",
        retention_ms="9",
        file_delete_delay_ms="10",
        max_message_bytes="11",
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms="12",
        message_timestamp_after_max_ms="13",
        compression_type="zstd",
        compression_zstd_level="7",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.25",
        min_compaction_lag_ms="14",
        max_compaction_lag_ms="15",
        delete_retention_ms="16",
        preallocate="true",
        min_insync_replicas="17",
        unclean_leader_election_enable="true",
    )
    assert settings == LogSettings(
        segment_bytes=1048577,
        segment_ms=2,
        segment_jitter_ms=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        flush_messages=6,
        flush_ms=7,
        retention_bytes=8,
        retention_ms=9,
        file_delete_delay_ms=10,
        max_message_bytes=11,
        message_timestamp_type=TimestampType.LOG_APPEND,
        message_timestamp_before_max_ms=12,
        message_timestamp_after_max_ms=13,
        compression=Compression.ZSTD,
        compression_level=7,
        compact=True,
        delete=False,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=14,
        max_compaction_lag_ms=15,
        delete_retention_ms=16,
        preallocate=True,
        min_insync_replicas=17,
        unclean_leader_election=True,
    )
    unchanged = [
        field.name
        for field in dataclasses.fields(LogSettings)
        if getattr(settings, field.name) == getattr(DEFAULT_LOG_SETTINGS, field.name)
    ]
    assert not unchanged


@pytest.mark.parametrize(
    ("name", "compression", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Compression.NONE, None),
        ("snappy", Compression.SNAPPY, None),
        ("gzip", Compression.GZIP, -1),
        ("lz4", Compression.LZ4, 9),
        ("zstd", Compression.ZSTD, 3),
    ],
)
def test_compression_comes_with_its_level(name: str, compression: Compression | None, level: int | None) -> None:
    settings = of(compression_type=name)
    assert (settings.compression, settings.compression_level) == (compression, level)


def test_cleanup_may_be_both_or_neither() -> None:
    both, neither = of(cleanup_policy="delete,compact"), of(cleanup_policy="")
    assert (both.compact, both.delete) == (True, True)
    assert (neither.compact, neither.delete) == (False, False)


def test_a_compacted_log_closes_its_segment_in_time_to_compact_it() -> None:
    assert of(segment_ms="10", max_compaction_lag_ms="5").max_segment_ms == 10
    assert of(segment_ms="10", max_compaction_lag_ms="5", cleanup_policy="compact").max_segment_ms == 5


def test_kafkas_internal_setting_makes_segments_smaller_than_is_allowed() -> None:
    assert of(internal_segment_bytes="100").segment_bytes == 100
