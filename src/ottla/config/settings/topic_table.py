"""The settings of a topic in Kafka 4.3.1, as rows like those of `broker_table.py`, and their broker synonyms."""

from typing import Final

TOPIC_ROWS: Final = """\
cleanup.policy | LIST | delete | [compact, delete] | MEDIUM
compression.gzip.level | INT | -1 | [1,...,9] or -1 | MEDIUM
compression.lz4.level | INT | 9 | [1,...,17] | MEDIUM
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | MEDIUM
compression.zstd.level | INT | 3 | [-131072,...,22] | MEDIUM
delete.retention.ms | LONG | 86400000 | [0,...] | MEDIUM
file.delete.delay.ms | LONG | 60000 | [0,...] | MEDIUM
flush.messages | LONG | 9223372036854775807 | [1,...] | MEDIUM
flush.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM
follower.replication.throttled.replicas | LIST | "" | [partitionId]:[brokerId],[partitionId]:[brokerId],... | MEDIUM
index.interval.bytes | INT | 4096 | [0,...] | MEDIUM
internal.segment.bytes | INT | null | any | MEDIUM | internal
leader.replication.throttled.replicas | LIST | "" | [partitionId]:[brokerId],[partitionId]:[brokerId],... | MEDIUM
local.retention.bytes | LONG | -2 | [-2,...] | MEDIUM
local.retention.ms | LONG | -2 | [-2,...] | MEDIUM
max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...] | MEDIUM
max.message.bytes | INT | 1048588 | [0,...] | MEDIUM
message.timestamp.after.max.ms | LONG | 3600000 | [0,...] | MEDIUM
message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM
message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime] | MEDIUM
min.cleanable.dirty.ratio | DOUBLE | 0.5 | [0,...,1] | MEDIUM
min.compaction.lag.ms | LONG | 0 | [0,...] | MEDIUM
min.insync.replicas | INT | 1 | [1,...] | MEDIUM
preallocate | BOOLEAN | false | any | MEDIUM
remote.log.copy.disable | BOOLEAN | false | any | MEDIUM
remote.log.delete.on.disable | BOOLEAN | false | any | MEDIUM
remote.storage.enable | BOOLEAN | false | any | MEDIUM
retention.bytes | LONG | -1 | any | MEDIUM
retention.ms | LONG | 604800000 | [-1,...] | MEDIUM
segment.bytes | INT | 1073741824 | [1048576,...] | MEDIUM
segment.index.bytes | INT | 10485760 | [4,...] | MEDIUM
segment.jitter.ms | LONG | 0 | [0,...] | MEDIUM
segment.ms | LONG | 604800000 | [1,...] | MEDIUM
unclean.leader.election.enable | BOOLEAN | false | any | MEDIUM
"""

SYNONYMS: Final = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": (
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": (
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
    ),
    "segment.ms": (
        "log.roll.ms",
        "log.roll.hours",
    ),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker settings that apply if a topic setting is not set, in order of precedence."""
