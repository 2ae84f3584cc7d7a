"""Follows the metadata log: takes in committed batches and snapshots, gives images and what changed.

Batches are gathered until `publish`, so that many small ones cost their readers one image. A metadata transaction
(KIP-868) takes effect as a whole: its records are kept back until the one that ends it, and dropped if it is aborted.
An image published meanwhile is that of before the transaction.
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
    """A new image, and how it differs from the last one published."""

    image: Image
    changes: Changes
    batch_aligned: bool
    """Whether the image ends where a batch ends; a snapshot may be taken only there."""


class _Position(NamedTuple):
    offset: int
    epoch: int
    timestamp: int


class _Transaction(NamedTuple):
    """An open metadata transaction: where the log stood before it, and what it wants to change."""

    before: _Position
    batch_aligned: bool
    records: list[tuple[int, object]]


class Loader:
    """`keeps_config` is passed on to each delta."""

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
        """Take in one committed batch; a control batch has no records here, and still moves the log on."""
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
        """The image of what was taken in so far; None if there is nothing new."""
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
        """Go on with what a delta made of this loader's own image, instead of applying its records once more."""
        assert self._position.offset == self.image.offset, "there is more to be published"
        assert delta.image.offset == self.image.offset, "the delta begins elsewhere"
        self._restart(image)
        return Update(image, delta.changes, batch_aligned=True)

    def _load(self, offset: int, record: object, *, starts_batch: bool) -> None:
        transaction = self._transaction
        match record:
            case BeginTransactionRecord():
                if transaction is not None:
                    raise ReplayError(f"a transaction begins at offset {offset} within another")
                self._transaction = _Transaction(self._position, starts_batch, [])
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise ReplayError(f"a transaction ends at offset {offset} but none began")
                self._transaction = None
                if isinstance(record, EndTransactionRecord):
                    for written_at, each in transaction.records:
                        self._apply(written_at, each)
            case _ if transaction is not None:
                transaction.records.append((offset, record))
            case _:
                self._apply(offset, record)

    def _apply(self, offset: int, record: object) -> None:
        try:
            self._delta.apply(record)
        except ReplayError as error:
            raise ReplayError(f"{type(record).__name__} at offset {offset}: {error}") from error
