"""The metadata publisher: reads committed records of the metadata log, builds images, and notifies subscribers.

Subscribers are called one after the other, in the order in which they were added: the image is replaced first, then
replicas apply it, then the components that depend on replicas. Snapshots are written in the background.

The node that runs the active controller already has the images of its decisions. It adopts them when their records are
committed, instead of reading the records again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.metadata.consensus.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import MetadataEntry, control_batch, entries, metadata_batch
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import MetadataLoader, Update
from ottla.metadata.image.snapshot import versioned_snapshot_records
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.protocol.wire.batch import read_batches
from ottla.storage.log_environment import Background

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 8 * 1024 * 1024
_SNAPSHOT_BATCH_RECORDS: Final = 100
"""The thread that writes a snapshot yields the interpreter after each batch, about every millisecond."""

Subscriber = Callable[[Update], None]


class ExpectedDecision(NamedTuple):
    """A decision that this node's controller appends: its delta, the image after it, and its size in the log."""

    delta: Delta
    image: Image
    size_bytes: int


class MetadataPublisher:
    """The cluster's metadata as this node has applied it."""

    def __init__(
        self,
        *,
        background: Background,
        now_ms: Callable[[], int],
        snapshot_bytes: int,
        snapshot_interval_ms: int,
        keeps_config: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._loader = MetadataLoader(keeps_config=keeps_config)
        self._background = background
        self._now_ms = now_ms
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_interval_ms = snapshot_interval_ms
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = now_ms()
        self._is_writing_snapshot = False
        self._position = 0
        self._quorum: QuorumDriver | None = None
        self._expected: deque[ExpectedDecision] = deque()
        self.subscribers: list[Subscriber] = []

    @property
    def image(self) -> Image:
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether the applied log ends within a metadata transaction."""
        return self._loader.in_transaction

    @property
    def applied_offset(self) -> int:
        """The offset after the last applied record."""
        return self._position

    def follow(self, quorum: QuorumDriver) -> None:
        """Load the latest snapshot. Committed records follow with `on_committed`."""
        self._quorum = quorum
        latest = quorum.log.latest_snapshot
        if latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            self._load_snapshot(latest)

    def expect_decision(self, expected: ExpectedDecision) -> None:
        """Expect a decision that the controller of this node is about to append."""
        self._expected.append(expected)

    def forget_expected(self) -> None:
        """Forget decisions that are not committed, and may never be. Only the log counts from here on."""
        self._expected.clear()

    def on_committed(self, high_watermark: int) -> None:
        """Apply and publish all committed records."""
        assert self._quorum is not None
        while self._expected and self._expected[0].image.offset < high_watermark:
            self._adopt(self._expected.popleft())
        if not (self._expected and self._is_next(self._expected[0])):
            self._read(high_watermark)
        # Otherwise only a part of the next decision is committed, which is adopted as a whole.

    def _is_next(self, expected: ExpectedDecision) -> bool:
        """Whether the decision follows directly, without records of the quorum in between, such as new voters."""
        return expected.delta.image.offset + 1 == self._position

    def _adopt(self, expected: ExpectedDecision) -> None:
        if not self._is_next(expected):
            return self._read(expected.image.offset + 1)
        update = self._loader.adopt(expected.delta, expected.image)
        self._position = expected.image.offset + 1
        self._bytes_since_snapshot += expected.size_bytes
        return self._publish_update(update)

    def _read(self, high_watermark: int) -> None:
        assert self._quorum is not None
        log = self._quorum.log
        if self._position < log.start_offset:
            latest = log.latest_snapshot
            assert latest is not None, "a log that does not start at 0 has a snapshot"
            self._load_snapshot(latest)
        while self._position < high_watermark:
            data = log.read_bytes(self._position, _READ_BYTES)
            for pos, header in read_batches(data, partial_tail=True):
                if header.base_offset >= high_watermark:
                    return self._publish()
                self._loader.load_batch(data, pos, header)
                self._position = header.next_offset
                self._bytes_since_snapshot += header.size_bytes
        return self._publish()

    def _publish(self) -> None:
        update = self._loader.publish()
        if update is not None:
            self._publish_update(update)

    def _publish_update(self, update: Update) -> None:
        self._notify(update)
        self._maybe_snapshot(update)

    def _notify(self, update: Update) -> None:
        for subscriber in self.subscribers:
            subscriber(update)

    def _load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        assert self._quorum is not None
        data = self._quorum.log.snapshot_content(snapshot)
        headers = list(read_batches(data))
        timestamp = max((header.max_timestamp for _, header in headers), default=-1)
        records = (
            entry.record
            for pos, header in headers
            if not header.is_control
            for entry in entries(data, pos, header)
            if isinstance(entry, MetadataEntry)
        )
        update = self._loader.load_snapshot(
            records, offset=snapshot.offset - 1, epoch=snapshot.epoch, timestamp=timestamp
        )
        self._position = snapshot.offset
        self._bytes_since_snapshot = 0
        self._notify(update)

    def _maybe_snapshot(self, update: Update) -> None:
        now_ms = self._now_ms()
        is_old = self._snapshot_interval_ms and now_ms - self._last_snapshot_ms >= self._snapshot_interval_ms
        is_due = self._bytes_since_snapshot >= self._snapshot_bytes or (is_old and self._bytes_since_snapshot > 0)
        if is_due and update.batch_aligned and not self._is_writing_snapshot:
            self.write_snapshot(update.image)

    def write_snapshot(self, image: Image) -> None:
        """Write an image down, so that the log before it may go."""
        quorum = self._quorum
        assert quorum is not None
        self._is_writing_snapshot = True
        self._last_snapshot_ms = self._now_ms()
        self._bytes_since_snapshot = 0
        snapshot = OffsetAndEpoch(image.offset + 1, image.epoch)
        history = quorum.consensus.history
        voters = history.voters_at(image.offset)
        start: list[object] = [SnapshotHeaderRecord(last_contained_log_timestamp=image.timestamp)]
        kraft_version = history.kraft_version_at(image.offset)
        if kraft_version > 0:
            start.append(KRaftVersionRecord(kraft_version=kraft_version))
            if voters is not None:
                start.append(voters.to_record())
        parts = snapshot_parts(image, start, self._now_ms())
        self._background.run(
            partial(quorum.log.write_snapshot, snapshot, parts),
            partial(self._snapshot_written, snapshot),
            self._snapshot_failed,
        )

    def _snapshot_written(self, snapshot: OffsetAndEpoch, _: None) -> None:
        self._is_writing_snapshot = False
        assert self._quorum is not None
        self._quorum.snapshot_taken(snapshot)

    def _snapshot_failed(self, error: OSError) -> None:
        self._is_writing_snapshot = False
        logger.error("writing a metadata snapshot failed; the next one is written when it is due: %s", error)


def snapshot_parts(image: Image, start: list[object], now_ms: int) -> Iterator[bytearray]:
    """Return the batches of a snapshot: control records, the image's records, and the footer that completes it."""
    yield control_batch(start, base_offset=0, epoch=image.epoch, timestamp=now_ms)
    offset = len(start)
    chunk: list[tuple[object, int]] = []
    for entry in versioned_snapshot_records(image):
        chunk.append(entry)
        if len(chunk) == _SNAPSHOT_BATCH_RECORDS:
            yield metadata_batch(chunk, base_offset=offset, epoch=image.epoch, timestamp=now_ms)
            offset += len(chunk)
            chunk = []
    if chunk:
        yield metadata_batch(chunk, base_offset=offset, epoch=image.epoch, timestamp=now_ms)
        offset += len(chunk)
    yield control_batch([SnapshotFooterRecord()], base_offset=offset, epoch=image.epoch, timestamp=now_ms)
