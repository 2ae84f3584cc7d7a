"""The fetch state of a partition on a follower, and how fetched data is applied to its log.

The log itself has the fetch offset; the state has only what the fetcher must remember in addition.
"""

from __future__ import annotations

from enum import Enum

from ottla.protocol.messages.rpc.fetch import PartitionData
from ottla.protocol.wire.batch import LENGTH_PREFIX_BYTES, read_header
from ottla.replication.partition import Partition
from ottla.storage.directories.logs import Logs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.truncation import advance_log_start

Key = tuple[bytes, int]
"""Topic id and partition."""


class Phase(Enum):
    """What a follower is doing."""

    FETCHING = "fetching records"
    FINDING_END = "asking for the leader's log end, because the fetch offset is out of range"
    FINDING_START = "asking for the leader's log start, because its log end is not before this one's"
    TRUNCATING = "waiting until its log is truncated"


class PartitionFetchState:
    """One partition that is fetched from its leader, in one leader epoch."""

    __slots__ = ("failures", "is_gone", "lag", "leader_end", "leader_epoch", "partition", "phase", "retry_at_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.phase = Phase.FETCHING
        self.retry_at_ms = 0
        """The time of the retry after an error; otherwise 0."""
        self.failures = 0
        self.lag: int | None = None
        """The number of committed records that are missing here; None before the first response."""
        self.leader_end = 0
        self.is_gone = False
        """Whether it is no longer fetched. Results that arrive later are ignored."""

    def __repr__(self) -> str:
        name = f"{self.partition.topic}-{self.partition.index}"
        return f"PartitionFetchState({name}, epoch {self.leader_epoch}, {self.phase.name})"

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    @property
    def is_in_sync(self) -> bool:
        return self.lag is not None and self.lag <= 0


def append_fetched(logs: Logs, partition: Partition, data: PartitionData, now_ms: int) -> int:
    """Append fetched records and apply the leader's offsets; return how many bytes were appended."""
    log, records, size = partition.log, data.records, 0
    if isinstance(records, bytes | bytearray | memoryview) and len(records):
        size = _append(logs, log, memoryview(records), now_ms)
    if log.advance_high_watermark(data.high_watermark):
        partition.wake_consumers()
    if data.log_start_offset > log.log_start_offset:
        advance_log_start(log, min(data.log_start_offset, log.high_watermark))
    return size


def _append(logs: Logs, log: PartitionLog, records: memoryview, now_ms: int) -> int:
    if log.log_end_offset == log.log_start_offset and len(records) > LENGTH_PREFIX_BYTES:
        first = read_header(records, 0)
        if first.base_offset < log.log_end_offset <= first.last_offset:
            # The leader's log starts inside a batch, which can only be copied whole.
            logs.truncate_fully_and_start_at(log.topic, log.partition, first.base_offset, now_ms=now_ms)
    return log.append_fetched(records, now_ms=now_ms)


def common_end(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return the offset to truncate a log to, given the diverging epoch and end offset from the leader (KIP-101).

    If the epoch is unknown here, this is the end of the largest smaller epoch, and the next fetch may diverge again.
    """
    end = log.log_end_offset
    if end_offset < 0:
        return end
    own_epoch, own_end = log.epochs.end_offset_for(epoch, end)
    if epoch < 0 or own_epoch < 0:
        return min(end_offset, end)
    if own_epoch != epoch:
        return min(own_end, end)
    return min(own_end, end_offset, end)
