"""The loader of the metadata log: applies committed batches and snapshots, and publishes images and changes.

Batches accumulate until `publish`, so that many small ones give one image. A metadata transaction (KIP-868) is atomic:
its records are held back until it ends, and dropped if it aborts. An image that is published in between is that before
the transaction.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import MetadataEntry, entries
from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import EMPTY, Image
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.protocol.wire.batch import BatchHeader
from ottla.protocol.wire.varint import Buffer


class Update(NamedTuple):
    """A new image, and its changes since the last published one."""

    image: Image
    changes: Changes
    batch_aligned: bool
    """Whether the image ends at the end of a batch. Only such an image can be written as a snapshot."""


class _Position(NamedTuple):
    offset: int
    epoch: int
    timestamp: int


class _Transaction(NamedTuple):
    """An open metadata transaction: the position before it, and its records."""

    before: _Position
    batch_aligned: bool
    records: list[tuple[int, object]]


class MetadataLoader:
    """Builds images from the log. `keeps_config` is passed to each delta."""

    def __init__(self, image: Image = EMPTY, *, keeps_config: Callable[[int, str], bool] | None = None) -> None:
        self.image = image
        self._keeps_config = keeps_config
        self._restart(image)

    def _restart(self, image: Image) -> None:
        self.image = image
        self._delta = Delta(image, keeps_config=self._keeps_config)
        self._position = _Position(image.offset, image.epoch, image.timestamp)
        self._transaction: _Transaction | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def load(
        self, records: Iterable[object], *, base_offset: int, last_offset: int, epoch: int, timestamp: int
    ) -> None:
        """Apply the records of one committed batch. A control batch has none, but advances the offset."""
        for offset, record in enumerate(records, base_offset):
            self._load(offset, record, starts_batch=offset == base_offset)
            self._position = _Position(offset, epoch, timestamp)
        self._position = _Position(last_offset, epoch, timestamp)

    def load_batch(self, data: Buffer, position: int, header: BatchHeader) -> None:
        """Apply the committed batch at this position of the data."""
        self.load(
            [entry.record for entry in entries(data, position, header) if isinstance(entry, MetadataEntry)],
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            epoch=header.leader_epoch,
            timestamp=header.max_timestamp,
        )

    def load_snapshot(self, records: Iterable[object], *, offset: int, epoch: int, timestamp: int) -> Update:
        """Start over from a snapshot, which replaces all there was; the arguments are of the last record it holds."""
        delta = Delta(EMPTY, keeps_config=self._keeps_config)
        for record in records:
            delta.apply(record)
        before, after = self.image, delta.finish(offset=offset, epoch=epoch, timestamp=timestamp)
        self._restart(after)
        return Update(after, Changes.between(before, after), batch_aligned=True)

    def publish(self) -> Update | None:
        """Return the image after all loaded records, or None if there is nothing new."""
        transaction = self._transaction
        position = self._position if transaction is None else transaction.before
        if position.offset == self.image.offset:
            return None
        image = self._delta.finish(offset=position.offset, epoch=position.epoch, timestamp=position.timestamp)
        update = Update(image, self._delta.changes, transaction is None or transaction.batch_aligned)
        self.image = image
        self._delta = Delta(image, keeps_config=self._keeps_config)
        return update

    def adopt(self, delta: Delta, image: Image) -> Update:
        """Take the image that a delta made of this loader's image, instead of applying the records again."""
        assert self._position.offset == self.image.offset, "records are loaded but not published"
        assert delta.image.offset == self.image.offset, "the delta starts from another image"
        self._restart(image)
        return Update(image, delta.changes, batch_aligned=True)

    def _load(self, offset: int, record: object, *, starts_batch: bool) -> None:
        transaction = self._transaction
        match record:
            case BeginTransactionRecord():
                if transaction is not None:
                    raise ReplayError(f"a transaction begins within another one, at offset {offset}")
                self._transaction = _Transaction(self._position, starts_batch, [])
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise ReplayError(f"a transaction ends at offset {offset}, but none is open")
                self._transaction = None
                if isinstance(record, EndTransactionRecord):
                    for record_offset, record in transaction.records:
                        self._apply(record_offset, record)
            case _ if transaction is not None:
                transaction.records.append((offset, record))
            case _:
                self._apply(offset, record)

    def _apply(self, offset: int, record: object) -> None:
        try:
            self._delta.apply(record)
        except ReplayError as error:
            raise ReplayError(f"{type(record).__name__} at offset {offset}: {error}") from error
