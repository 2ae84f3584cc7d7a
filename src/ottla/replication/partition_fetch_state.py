"""What a follower does to its log with what its leader tells: append, cut off what is not the leader's, begin anew.

The log itself says how far it is; here is only what the fetcher must remember beside it.
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
    """What a follower needs next."""

    FETCHING = "records"
    FINDING_END = "the leader's log end, for it does not have what was asked for"
    FINDING_START = "the leader's log start, for its log end is not before this one's"
    TRUNCATING = "its log to be cut, which waits for the disk"


class PartitionFetchState:
    """One partition that is fetched from its leader, in one term of it."""

    __slots__ = ("failures", "is_gone", "lag", "leader_end", "leader_epoch", "partition", "phase", "retry_at_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.phase = Phase.FETCHING
        self.retry_at_ms = 0
        """0 unless something went wrong with it just now."""
        self.failures = 0
        self.lag: int | None = None
        """How much of what is committed is missing here; None before the first answer."""
        self.leader_end = 0
        self.is_gone = False
        """Whether it is fetched no more: what is still under way for it comes too late."""

    def __repr__(self) -> str:
        name = f"{self.partition.topic}-{self.partition.index}"
        return f"PartitionFetchState({name}, epoch {self.leader_epoch}, {self.phase.name})"

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    @property
    def is_in_sync(self) -> bool:
        return self.lag is not None and self.lag <= 0


def take(logs: Logs, partition: Partition, data: PartitionData, now_ms: int) -> int:
    """Append what was fetched and follow the leader's offsets; returns how many bytes were appended."""
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
            # The leader's log begins inside a batch, which can only be copied as a whole.
            logs.truncate_fully_and_start_at(log.topic, log.partition, first.base_offset, now_ms=now_ms)
    return log.append_fetched(records, now_ms=now_ms)


def common_end(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Up to where a log may be the leader's, which says that its largest epoch up to ours ends there (KIP-101).

    Where the epoch is not known here, the largest one before it must do: then the leader is asked again.
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
