"""The metadata log on disk: `__cluster_metadata-0`, with its snapshots.

A snapshot is the file `<end offset>-<epoch>.checkpoint`: a header, the records of an image, a footer. It is written as
`.part` and renamed when it is complete. The log and the snapshots before the latest snapshot can be deleted. Opening
reads the whole log, because an image is built from it anyway.
"""

import re
from collections.abc import Iterable
from typing import Final

from ottla.config.node_settings import NodeSettings
from ottla.metadata.consensus.config import METADATA_TOPIC
from ottla.metadata.consensus.log_view import OffsetAndEpoch
from ottla.metadata.runtime.bootstrap import METADATA_LOG_NAME
from ottla.protocol.wire.batch import MAX_INT64
from ottla.storage.compaction.offset_map import give_way
from ottla.storage.disk import Disk, FileRange, LogFile, write_all
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import read
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, truncate_fully, truncate_to
from ottla.storage.log_environment import LogEnvironment

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024

_SNAPSHOT: Final = ".checkpoint"
_PART: Final = ".part"
_snapshot_name = re.compile(r"(\d{20})-(\d{10})\.checkpoint").fullmatch


class MetadataLog:
    """The `LogView` of consensus, and the writes that are its effects."""

    def __init__(
        self, environment: LogEnvironment, directory: str, *, now_ms: int, segment_bytes: int, segment_ms: int
    ) -> None:
        self._disk: Disk = environment.disk
        self.directory = f"{directory}/{METADATA_LOG_NAME}"
        settings = LogSettings(
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            max_message_bytes=MAX_BATCH_BYTES,
            message_timestamp_after_max_ms=MAX_INT64,
            retention_ms=-1,
            retention_bytes=-1,
        )
        self._snapshots = self._find_snapshots()
        start = self._snapshots[-1].offset if self._snapshots else 0
        if self._disk.exists(self.directory) and any(
            name.endswith(".log") for name in self._disk.names(self.directory)
        ):
            self.log = open_log(environment, self.directory, METADATA_TOPIC, 0, settings, clean=False, now_ms=now_ms)
            if self.log.log_end_offset < start:
                truncate_fully(self.log, start, now_ms=now_ms)
        else:
            self.log = create_log(
                environment, self.directory, METADATA_TOPIC, 0, settings, now_ms=now_ms, start_offset=start
            )
            self._disk.sync_dir(self.directory)
            self._disk.sync_dir(directory)

    @classmethod
    def open(cls, settings: NodeSettings, environment: LogEnvironment, now_ms: int) -> "MetadataLog":
        """Open the metadata log of a node."""
        return cls(
            environment,
            settings.metadata_log_dir,
            now_ms=now_ms,
            segment_bytes=settings.number("metadata.log.segment.bytes"),
            segment_ms=settings.number("metadata.log.segment.ms"),
        )

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        epoch = self.log.epochs.latest
        if epoch < 0 and self._snapshots:
            return self._snapshots[-1].epoch
        return max(epoch, 0)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch of the log up to this one, and its end offset; see `LogView`."""
        log = self.log
        earliest = self.earliest_snapshot
        found_epoch, offset = log.epochs.end_offset_for(epoch, log.log_end_offset)
        if found_epoch < 0 or offset < 0:
            return OffsetAndEpoch(log.log_end_offset, self.last_epoch)
        if earliest is not None and offset == earliest.offset and found_epoch == epoch and earliest.epoch < epoch:
            return earliest
        return OffsetAndEpoch(offset, found_epoch)

    def read(self, offset: int, max_bytes: int) -> FileRange | bytes:
        """Return batches from an offset on, as a range of the file."""
        return read(self.log, offset, max_bytes, Isolation.LOG_END).records or b""

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Return batches from an offset on: at least one if there is any; the last one may be cut short."""
        records = read(self.log, offset, max_bytes, Isolation.LOG_END).records
        return b"" if records is None else self._disk.pread(records.file.number, records.size, records.position)

    def append(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Append batches, whose offsets and epochs are set."""
        written = self.log.append_fetched(data, now_ms=now_ms)
        assert written == len(data), "consensus appends whole batches"

    def truncate(self, offset: int, now_ms: int) -> None:
        """Truncate the log to an offset."""
        truncate_to(self.log, offset, now_ms=now_ms, producer_expiration_ms=MAX_INT64)

    # -- snapshots --

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots[0] if self._snapshots else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots[-1] if self._snapshots else None

    def snapshot_bytes(self, snapshot: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot, or None if it does not exist."""
        return self._disk.size_of(self._path(snapshot)) if snapshot in self._snapshots else None

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> FileRange | bytes:
        """Return a part of a snapshot, as a range of its file."""
        size = self.snapshot_bytes(snapshot)
        assert size is not None, f"there is no snapshot {snapshot}"
        file = LogFile(self._disk, self._path(snapshot), self._disk.open(self._path(snapshot)))
        return FileRange(file, position, max(min(max_bytes, size - position), 0))

    def snapshot_content(self, snapshot: OffsetAndEpoch) -> bytes:
        """Return the content of a snapshot."""
        file = self._disk.open(self._path(snapshot))
        try:
            return self._disk.pread(file, self._disk.size(file), 0)
        finally:
            self._disk.close(file)

    def write_snapshot(self, snapshot: OffsetAndEpoch, parts: Iterable[bytes | bytearray]) -> None:
        """Write a snapshot durably. This may run in a thread; `add_snapshot` then registers it."""
        part = self._path(snapshot) + _PART
        file = self._disk.create(part)
        try:
            position = 0
            for data in parts:
                write_all(self._disk, file, data, position)
                position += len(data)
                give_way()
            self._disk.sync(file)
        finally:
            self._disk.close(file)
        self._disk.rename(part, self._path(snapshot))
        self._disk.sync_dir(self.directory)

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Register a complete snapshot. The log before it can be deleted."""
        if snapshot not in self._snapshots:
            self._snapshots.append(snapshot)
            self._snapshots.sort()

    def receive_snapshot(self, snapshot: OffsetAndEpoch, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write a chunk of the leader's snapshot."""
        part = self._path(snapshot) + _PART
        file = self._disk.create(part) if position == 0 else self._disk.open(part)
        try:
            write_all(self._disk, file, data, position)
        finally:
            self._disk.close(file)

    def install_snapshot(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """Complete the leader's snapshot, and replace the whole log by it."""
        part = self._path(snapshot) + _PART
        file = self._disk.open(part)
        try:
            self._disk.sync(file)
        finally:
            self._disk.close(file)
        self._disk.rename(part, self._path(snapshot))
        self._disk.sync_dir(self.directory)
        self.add_snapshot(snapshot)
        truncate_fully(self.log, snapshot.offset, now_ms=now_ms)

    def forget_before(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """Delete the snapshots before this one, and the segments that end before it."""
        self.log.high_watermark = max(self.log.high_watermark, snapshot.offset)
        advance_log_start(self.log, snapshot.offset)
        remove_expired(self.log, now_ms)
        for old in [older for older in self._snapshots if older < snapshot]:
            self._snapshots.remove(old)
            self._disk.remove(self._path(old))

    def close(self) -> None:
        """Flush and close the log."""
        self.log.close()

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self.directory}/{snapshot.offset:020d}-{snapshot.epoch:010d}{_SNAPSHOT}"

    def _find_snapshots(self) -> list[OffsetAndEpoch]:
        if not self._disk.exists(self.directory):
            return []
        snapshots = []
        for name in self._disk.names(self.directory):
            if name.endswith(_PART):
                self._disk.remove(f"{self.directory}/{name}")
            elif match := _snapshot_name(name):
                snapshots.append(OffsetAndEpoch(int(match[1]), int(match[2])))
        return sorted(snapshots)
