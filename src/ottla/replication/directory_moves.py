"""Moves of replicas to another log directory of the same broker (KIP-113, KIP-858).

A future log is created in the new directory and copied from the current log in steps, while that is in use. When it has
caught up, it is synced, and the new directory is reported to the controller. Once the controller has accepted it, the
future log replaces the current one in one step of the event loop, after it has caught up again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from ottla.protocol.errors import ApiError, NotLeader, ReplicaNotAvailable, StorageFailed, UnsupportedVersion, by_code
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.wire.batch import read_header
from ottla.protocol.wire.errors import ProtocolError
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.log.epochs import LeaderEpochs
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.truncation import advance_log_start, truncate_fully, truncate_to

logger = logging.getLogger(__name__)

_STEP_BYTES: Final = 256 * 1024
_RETRY_S: Final = 0.5
UNLIMITED: Final = (1 << 63) - 1


class Loop(Protocol):
    """The methods of the event loop that moves use."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object: ...


class DirectoryMoves:
    """The moves of this broker's replicas to other directories."""

    def __init__(
        self,
        partitions: Partitions,
        runtime: Runtime,
        *,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        max_bytes_per_s: Callable[[], int] = lambda: UNLIMITED,
    ) -> None:
        self.partitions = partitions
        self.loop: Loop = runtime.loop
        self.ask_controller = ask_controller
        self.spawn = runtime.spawn
        self.broker_epoch = broker_epoch
        self.now_ms = runtime.now_ms
        self._max_bytes_per_s = max_bytes_per_s
        self._free_at_ms = 0.0
        """When the rate limit allows the next copy."""
        self._under_way: dict[tuple[str, int], _DirectoryMove] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def start(self, partition: Partition, directory: LogDirectory) -> None:
        """Start to move a replica, unless it is there already or on its way. A move elsewhere is cancelled."""
        logs, name = self.partitions.logs, (partition.topic, partition.index)
        under_way = self._under_way.get(name)
        if under_way is not None:
            if under_way.directory is directory:
                return
            under_way.cancel()
        if logs.directory_of(*name) is directory:
            return
        if any(not each.is_online for each in logs.directories):
            # The replica may have a future log in the offline directory, and must not have two.
            raise StorageFailed("a log directory is offline: replicas cannot be moved until it is back")
        directory_id = directory.meta.directory_id
        assert directory_id is not None, f"{directory} has no id"
        logs.create_future(partition.log, directory_id, now_ms=self.now_ms())
        self._begin(partition, directory)

    def resume(self) -> None:
        """Resume the moves that were interrupted by a restart."""
        for directory in self.partitions.logs.directories:
            for topic, index in list(directory.futures):
                try:
                    partition = self.partitions.get(topic, index)
                except ApiError as error:
                    logger.warning("Cannot resume the move of %s-%d: %s", topic, index, error)
                else:
                    self._begin(partition, directory)

    def _begin(self, partition: Partition, directory: LogDirectory) -> None:
        name = partition.topic, partition.index
        move = self._under_way[name] = _DirectoryMove(self, partition, directory, directory.futures[name])
        self.loop.call_soon(move.step)

    def count_copied(self, size: int) -> None:
        """Count copied bytes against the rate limit that all moves share."""
        self._free_at_ms = max(self._free_at_ms, self.now_ms()) + size * 1000 / self._max_bytes_per_s()

    def schedule_step(self, move: _DirectoryMove) -> None:
        """Schedule a move's next step when the rate limit allows it."""
        wait_ms = self._free_at_ms - self.now_ms()
        if wait_ms < 1:
            self.loop.call_soon(move.step)
        else:
            self.loop.call_later(wait_ms / 1000, move.step)

    def remove(self, move: _DirectoryMove) -> None:
        """Remove a move that has ended."""
        partition = move.partition
        partition.future = None
        self._under_way.pop((partition.topic, partition.index), None)
        partition.wake_deletes()
        partition.completions.run()


class _DirectoryMove:
    """The move of one replica."""

    def __init__(
        self, moves: DirectoryMoves, partition: Partition, directory: LogDirectory, future: PartitionLog
    ) -> None:
        self._moves = moves
        self.partition = partition
        self.directory = directory
        self.future = future
        self._is_over = False
        self._is_agreed = False
        """Whether the controller has accepted the new directory."""
        partition.future = future

    def cancel(self) -> None:
        """Cancel the move."""
        if not self._is_over:
            self._end()
            if self.directory.is_online and self._is_wanted():
                self.directory.delete(self.future)

    def step(self) -> None:
        """Copy a part of the log; once everything is copied, sync, report or replace it."""
        if self._is_over:
            return
        if not self._is_wanted() or not self.directory.is_online:
            self._end()
            return
        try:
            self._moves.count_copied(self._copy())
            if self.future.log_end_offset < self.partition.log.log_end_offset:
                self._moves.schedule_step(self)
            elif self._is_agreed:
                self._take_over()
            else:
                self.future.flusher.when_durable(self.future.log_end_offset, self._synced)
        except (OSError, CorruptLog, ProtocolError, ApiError) as error:
            logger.error("Moving %s to %s failed: %s", self.partition, self.directory.path, error)
            self.cancel()

    def _is_wanted(self) -> bool:
        """Return whether the partition and its future log still exist."""
        name = self.partition.topic, self.partition.index
        topic = self._moves.partitions.find(*name)
        return topic is self.partition and self.directory.futures.get(name) is self.future

    def _copy(self) -> int:
        """Copy a part of the current log to the future log; return how many bytes were copied."""
        current, future, now_ms, copied = self.partition.log, self.future, self._moves.now_ms(), 0
        self._align(now_ms)
        if future.log_end_offset < current.log_end_offset:
            records = read(current, future.log_end_offset, _STEP_BYTES, Isolation.LOG_END).records
            if records is not None:
                copied = records.size
                self._append(
                    current.environment.disk.pread(records.file.number, records.size, records.position), now_ms
                )
        future.advance_high_watermark(current.high_watermark)
        advance_log_start(future, min(current.log_start_offset, future.high_watermark))
        return copied

    def _append(self, data: bytes, now_ms: int) -> None:
        future, first = self.future, read_header(data, 0).base_offset
        if first < future.log_end_offset == future.log_start_offset:
            # The log starts inside a batch, which can only be copied whole.
            truncate_fully(future, first, now_ms=now_ms)
        future.append_fetched(data, now_ms=now_ms)

    def _align(self, now_ms: int) -> None:
        """Truncate records that the current log does not have (any more), and skip what it has deleted."""
        current, future = self.partition.log, self.future
        if future.log_end_offset < current.log_start_offset:
            truncate_fully(future, current.log_start_offset, now_ms=now_ms)
        epoch = future.epochs.latest
        if future.log_end_offset == future.log_start_offset or epoch < 0:
            return
        # Logs with the same epoch at an offset are equal up to there.
        common, end = current.epochs.end_offset_for(epoch, current.log_end_offset)
        if common != epoch:
            end = max(end, current.log_start_offset)
        if future.log_end_offset > end:
            expiration = self.directory.producer_expiration_ms
            truncate_to(future, end, now_ms=now_ms, producer_expiration_ms=expiration)

    def _synced(self) -> None:
        if not self._is_over:
            self._moves.spawn(self._agree())

    async def _agree(self) -> None:
        """Report the new directory. Otherwise the controller would judge the replica by its old directory."""
        try:
            await self._tell_controller()
        except (NotLeader, ReplicaNotAvailable) as error:
            logger.warning("Cancelled the move of %s: %s", self.partition, error)
            self.cancel()
        except ApiError as error:
            logger.warning("Could not report the new directory of %s, retrying: %s", self.partition, error)
            self._moves.loop.call_later(_RETRY_S, self.step)
        else:
            self._is_agreed = True
            self.step()

    async def _tell_controller(self) -> None:
        partition, directory_id = self.partition, self.directory.meta.directory_id
        assert directory_id is not None
        topic = TopicData(topic_id=partition.topic_id, partitions=[PartitionData(partition_index=partition.index)])
        request = AssignReplicasToDirsRequest(
            broker_id=partition.broker_id,
            broker_epoch=self._moves.broker_epoch(),
            directories=[DirectoryData(id=directory_id, topics=[topic])],
        )
        try:
            answer: AssignReplicasToDirsResponse = await self._moves.ask_controller(request)
        except UnsupportedVersion:
            return  # an older metadata version does not track directories
        codes = [answer.error_code]
        codes += [
            each.error_code
            for directory in answer.directories
            for topic in directory.topics
            for each in topic.partitions
        ]
        for code in codes:
            if code:
                raise by_code(code)("the controller rejected the replica's directory")

    def _take_over(self) -> None:
        """Replace the current log with the future log."""
        partition, future = self.partition, self.future
        # Epochs without records are in no copied batch.
        future.epochs = LeaderEpochs(partition.log.epochs.entries)
        future.epochs.is_dirty = True
        future.settings = partition.log.settings
        # A running sync proves nothing, because the directory is renamed.
        future.flusher.on_truncated()
        partition.take_log(self._moves.partitions.logs.promote_future(partition.topic, partition.index))
        partition.mark_watches()
        partition.log.flusher.start()
        # From now on the next start must read this directory's checkpoints.
        self.directory.checkpoint_recovery_points()
        self.directory.checkpoint_log_starts()
        self.directory.checkpoint_high_watermarks()
        logger.info("Moved %s to %s", partition, self.directory.path)
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._moves.remove(self)
