"""The state of one partition of `__transaction_state`: the producer and last transaction of each transactional id.

A transaction moves from Empty to Ongoing with its first partition, to PrepareCommit or PrepareAbort when its outcome is
written, and to CompleteCommit or CompleteAbort when all partitions have their marker. Once the outcome is in the log,
it is final.
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
"""The timeout of a transaction in a two-phase commit (KIP-939): only its producer may end it."""
EPOCH_BUMPING: Final = 2
"""The first transaction.version in which each end of a transaction bumps the producer epoch (KIP-890)."""


class TransactionStatus(Enum):
    """The state of a transaction: the number in records, and the name in responses."""

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
        """Whether the outcome is written and markers are being sent."""
        return self is TransactionStatus.PREPARE_COMMIT or self is TransactionStatus.PREPARE_ABORT

    @property
    def is_over(self) -> bool:
        """Whether there is no transaction to end."""
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
    """A transactional id: its producer and its last transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    """The previous id: a producer may retry the request that exhausted the epochs of that id."""
    next_producer_id: int = NO_ID
    """The id that the producer gets when the transaction is complete, because its epochs are exhausted."""
    client_version: int = 0
    """The transaction.version of the producer."""
    last_epoch: int = NO_EPOCH
    """The epoch before the producer's own last bump, which it may retry. Not recorded."""

    def changed(self, **changes: object) -> Transaction:
        """Return the next state, whose previous producer id is the current one."""
        changes.setdefault("previous_producer_id", self.producer_id)
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer has no further epoch; the highest one is reserved for fencing."""
        return is_exhausted(self.epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether an open transaction exceeds its timeout."""
        return (
            self.status is TransactionStatus.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may get a higher epoch."""
    return epoch >= MAX_EPOCH - 1


class UnrecordedFields(NamedTuple):
    """The fields of a transaction that its last record does not have."""

    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0


NOTHING_UNRECORDED: Final = UnrecordedFields()
"""The values after a coordinator takes over."""


@dataclass(frozen=True, slots=True)
class TransactionsState:
    """The state of the transaction coordinator on one partition."""

    transactions: Map[str, Transaction] = field(default_factory=Map)
    unrecorded: Map[str, UnrecordedFields] = field(default_factory=Map)
    """By transactional id. Decisions set them, so that replaying their records restores the decided transaction."""

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.transactions.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self.transactions.get(transactional_id)

    def with_unrecorded_fields(self, transaction: Transaction) -> TransactionsState:
        """Return the state with the fields that the next record of the transaction will not have."""
        unrecorded = UnrecordedFields(
            transaction.last_epoch,
            transaction.previous_producer_id,
            transaction.next_producer_id,
            transaction.client_version,
        )
        return replace(self, unrecorded=self.unrecorded.set(transaction.transactional_id, unrecorded))
