"""Verification of transactions with their coordinator, before their first batch is appended (KIP-890).

A batch of a transaction that is not open on this partition may be late: the transaction may have ended meanwhile, and
no marker would ever end it again. So the broker first asks the coordinator whether the partition is part of the
producer's transaction. The answer may also be late. Therefore a guard is created before asking and dropped when a
marker arrives: the batch is appended only if its guard is still current. Once the transaction is open here, no guard is
needed.
"""

from __future__ import annotations

from ottla.protocol.errors import InvalidTxnState, OutOfOrderSequenceNumber
from ottla.protocol.wire.batch import BatchHeader


class Guard:
    """One producer's transaction that is being verified."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "names_epochs")

    def __init__(self, epoch: int, sequence: int, names_epochs: bool, created_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The lowest sequence of the waiting batches: it must be the first of the transaction."""
        self.names_epochs = names_epochs
        """Whether each transaction of the producer has its own epoch (transaction.version 2)."""
        self.created_ms = created_ms

    def add(self, epoch: int, sequence: int) -> None:
        """Add another batch that waits for the answer."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Guards:
    """The guards of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int, epoch: int, sequence: int, *, names_epochs: bool, now_ms: int) -> Guard:
        """Return the guard for a waiting batch; all batches of one transaction share it."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(epoch, sequence, names_epochs, now_ms)
        else:
            guard.add(epoch, sequence)
        return guard

    def check(self, header: BatchHeader, guard: Guard | None, *, has_batches: bool) -> None:
        """Raise unless the batch may be the first of its transaction here."""
        guard = self.check_current(header.producer_id, guard)
        sequence = header.base_sequence
        if guard.names_epochs and sequence and not has_batches:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} starts its transaction with sequence {sequence}, not 0"
            )
        if sequence > guard.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {sequence} before {guard.lowest_sequence}"
            )

    def check_current(self, producer_id: int, guard: Guard | None) -> Guard:
        """Return the guard if it is still current; raise if a marker has dropped it."""
        if guard is None or guard is not self._guards.get(producer_id):
            raise InvalidTxnState("Record was not part of an ongoing transaction")
        return guard

    def on_batch(self, producer_id: int) -> None:
        """Drop the guard of a transaction that is open now."""
        self._guards.pop(producer_id, None)

    def on_marker(self, producer_id: int, epoch: int) -> None:
        """Drop the guard of a transaction that has ended."""
        guard = self._guards.get(producer_id)
        # If transactions have their own epochs, a marker has the next one's, which may be in verification already.
        if guard is not None and not (guard.names_epochs and guard.epoch == epoch):
            del self._guards[producer_id]

    def expire(self, until_ms: int) -> None:
        """Drop guards that were created up to a time."""
        for producer_id in [key for key, guard in self._guards.items() if guard.created_ms <= until_ms]:
            del self._guards[producer_id]
