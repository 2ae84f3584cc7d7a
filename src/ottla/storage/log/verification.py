"""Which transactions the coordinator is being asked about, before their first batch is appended (KIP-890).

A batch of a transaction that is not open on this partition may be late: its transaction may have been ended meanwhile,
and no marker would ever end it again. So the coordinator is asked first whether the partition is part of the producer's
transaction. Its answer may itself be late. Therefore a guard is made before asking, and dropped when a marker comes:
the batch is appended only if its guard is still the partition's. Once the transaction is open here, none is needed.
"""

from __future__ import annotations

from ottla.protocol.errors import InvalidTxnState, OutOfOrderSequenceNumber
from ottla.protocol.wire.batch import BatchHeader


class Guard:
    """One producer's transaction that is being asked about."""

    __slots__ = ("epoch", "lowest_sequence", "made_ms", "names_epochs")

    def __init__(self, epoch: int, sequence: int, names_epochs: bool, made_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that wait for the answer: no other may be the first of the transaction."""
        self.names_epochs = names_epochs
        """Whether each transaction of the producer has an epoch of its own (transaction.version 2)."""
        self.made_ms = made_ms

    def add(self, epoch: int, sequence: int) -> None:
        """Another batch waits for the answer."""
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
        """A guard for a batch that waits; all batches of one transaction share it."""
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
                f"producer {header.producer_id} sent sequence {sequence} while {guard.lowest_sequence} is still to come"
            )

    def check_current(self, producer_id: int, guard: Guard | None) -> Guard:
        """The guard, if nothing has ended the transaction since it was made."""
        if guard is None or guard is not self._guards.get(producer_id):
            raise InvalidTxnState("Record was not part of an ongoing transaction")
        return guard

    def on_batch(self, producer_id: int) -> None:
        """The transaction is open here now."""
        self._guards.pop(producer_id, None)

    def on_marker(self, producer_id: int, epoch: int) -> None:
        """A transaction has ended: what was asked about it says nothing any more."""
        guard = self._guards.get(producer_id)
        # With epochs for names, a marker has that of the next transaction, which may be asked about already.
        if guard is not None and not (guard.names_epochs and guard.epoch == epoch):
            del self._guards[producer_id]

    def expire(self, until_ms: int) -> None:
        """Drop guards that were made before a time."""
        for producer_id in [key for key, guard in self._guards.items() if guard.made_ms <= until_ms]:
            del self._guards[producer_id]
