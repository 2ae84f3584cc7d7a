"""What one partition of `__transaction_state` holds: of each transactional id its producer and its last transaction.

A transaction goes from Empty to Ongoing when its first partition is added, to PrepareCommit or PrepareAbort when its
end is decided, and to CompleteCommit or CompleteAbort when all its partitions have their marker. The decision is what
counts: once it is in the log, nothing can change the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from immutables import Map

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 0x7FFF
NO_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939): its owner alone may end it."""
EPOCH_BUMPING: Final = 2
"""The transaction.version from which on each end of a transaction raises the producer's epoch (KIP-890)."""


class TransactionStatus(Enum):
    """Where a transaction stands: the number that records hold, and the name that people see."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    @property
    def is_being_ended(self) -> bool:
        """Whether the outcome is decided, and partitions are being told."""
        return self is TransactionStatus.PREPARE_COMMIT or self is TransactionStatus.PREPARE_ABORT

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to end."""
        return (
            self is TransactionStatus.EMPTY
            or self is TransactionStatus.COMPLETE_COMMIT
            or self is TransactionStatus.COMPLETE_ABORT
        )


STATUS_BY_NUMBER: Final = {status.number: status for status in TransactionStatus}
STATUS_BY_LABEL: Final = {status.label: status for status in TransactionStatus}


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: who may use it, and its last transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    """The id before the last change: a producer may repeat a request in which its epochs ran out."""
    next_producer_id: int = NO_ID
    """The id that a producer gets when this transaction is complete, because its epochs have run out."""
    client_version: int = 0
    """The transaction.version that the producer knows of."""
    last_epoch: int = NO_EPOCH
    """The epoch before the last one that its own producer raised: it may repeat that request. In no record."""

    def changed(self, **changes: object) -> Transaction:
        """The next state; it remembers the producer id of this one."""
        changes.setdefault("previous_producer_id", self.producer_id)
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer's epochs have run out, but for one that is kept to fence it."""
        return is_exhausted(self.epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether it has been open for longer than its producer allowed."""
        return (
            self.status is TransactionStatus.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may have an epoch above this one."""
    return epoch >= MAX_EPOCH - 1


class UnrecordedFields(NamedTuple):
    """Of a transaction, what the record that was last written does not hold."""

    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0


NOTHING_UNRECORDED: Final = UnrecordedFields()
"""What is left of it for one who takes over."""


@dataclass(frozen=True, slots=True)
class TransactionsState:
    """The state of the transaction coordinator on one partition."""

    transactions: Map[str, Transaction] = field(default_factory=Map)
    unrecorded: Map[str, UnrecordedFields] = field(default_factory=Map)
    """By transactional id. Set by decisions, so that replaying their records gives back what they decided."""

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.transactions.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self.transactions.get(transactional_id)

    def with_unrecorded_fields(self, transaction: Transaction) -> TransactionsState:
        """With what the record that is about to be written will not hold."""
        unrecorded = UnrecordedFields(
            transaction.last_epoch,
            transaction.previous_producer_id,
            transaction.next_producer_id,
            transaction.client_version,
        )
        return replace(self, unrecorded=self.unrecorded.set(transaction.transactional_id, unrecorded))
