"""The end of a transaction: EndTxn, and the coordinator's own aborts.

First the outcome is written (PrepareCommit, PrepareAbort): from then on it is decided. Then each partition gets its
marker, and when all have theirs the transaction is complete.

Up to transaction.version 1 the epoch stays: a late request of an earlier transaction cannot be told from one of the
next. From 2 on (KIP-890) each end raises the epoch, so that it names one transaction, and an EndTxn with the epoch
before the current one is a repeat. What is not open may then be aborted too: the producer cannot know whether its first
write, which would have opened it, arrived.

          | Abort          | Commit
          | repeat   next  | repeat   next
    Empty | fenced   bump  | fenced   invalid
  aborted | done     bump  | invalid  invalid
committed | invalid  bump  | done     invalid
"""

from __future__ import annotations

from typing import Any

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.state import (
    EPOCH_BUMPING,
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    Status,
    Transaction,
    TransactionsState,
)
from ottla.protocol.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from ottla.protocol.messages.rpc.end_txn import EndTxnResponse
from ottla.storage.state_machine.decision import Decision


def end(
    state: TransactionsState,
    context: Context,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    client_version: int,
) -> Decision[EndTxnResponse]:
    """End a producer's transaction as it asks."""
    known = state.get(transactional_id)
    if known is None:
        raise InvalidProducerIdMapping(f"{transactional_id} is not known")
    if client_version >= EPOCH_BUMPING:
        return _end_and_bump(state, context, known, producer_id, epoch, commit)
    if known.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} is not of producer {producer_id}")
    if known.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has epoch {known.epoch}, not {epoch}")
    if known.status is Status.ONGOING:
        prepared = known.changed(
            status=_prepared(commit), updated_ms=context.now_ms, next_producer_id=NO_ID, client_version=0
        )
        return context.decided(state, prepared, EndTxnResponse())
    if known.status is _completed(commit):
        return Decision((), EndTxnResponse())
    if known.status is _prepared(commit):
        raise ConcurrentTransactions(f"the transaction of {transactional_id} is being ended")
    raise _wrong(known, commit)


def _end_and_bump(
    state: TransactionsState, context: Context, known: Transaction, producer_id: int, epoch: int, commit: bool
) -> Decision[EndTxnResponse]:
    # A repeat of the request in which the epochs ran out: the producer has another id by now.
    is_repeat_across_ids = known.previous_producer_id == producer_id and epoch == MAX_EPOCH - 1 and known.epoch == 0
    is_repeat = known.epoch == epoch + 1 or is_repeat_across_ids
    if known.producer_id != producer_id and not is_repeat_across_ids:
        raise InvalidProducerIdMapping(f"{known.transactional_id} is not of producer {producer_id}")
    status = known.status
    if status.is_being_ended:
        is_valid = known.epoch == epoch + 1
    elif status is Status.ONGOING or status is Status.EMPTY:
        is_valid = known.epoch == epoch
    else:
        is_valid = is_repeat or known.epoch == epoch
    if not is_valid:
        raise ProducerFenced(f"{known.transactional_id} has epoch {known.epoch}, not {epoch}")
    context.check_client(EPOCH_BUMPING)
    if status is Status.ONGOING:
        return _bump(state, context, known, commit)
    if status is _prepared(commit):
        raise ConcurrentTransactions(f"the transaction of {known.transactional_id} is being ended")
    if is_repeat and status is _completed(commit):
        return Decision((), EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch))
    if status.is_over and not is_repeat and not commit:
        return _bump(state, context, known, commit)
    raise _wrong(known, commit)


def _bump(state: TransactionsState, context: Context, known: Transaction, commit: bool) -> Decision[EndTxnResponse]:
    prepared = _bumped(context, known, commit)
    given = completed(prepared, context.now_ms)
    reply = EndTxnResponse(producer_id=given.producer_id, producer_epoch=given.epoch)
    return context.decided(state, prepared, reply)


def _bumped(context: Context, known: Transaction, commit: bool) -> Transaction:
    is_open = known.status is Status.ONGOING
    return known.changed(
        status=_prepared(commit),
        epoch=min(known.epoch + 1, MAX_EPOCH),
        last_epoch=known.epoch,
        start_ms=known.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        # The highest epoch is written to the markers, and given to nobody.
        next_producer_id=context.take_producer_id() if known.is_exhausted else NO_ID,
        client_version=EPOCH_BUMPING,
    )


def fence(state: TransactionsState, context: Context, known: Transaction, reply: Any) -> Decision[Any]:
    """Abort an open transaction that its producer does not end, and fence the producer."""
    assert known.status is Status.ONGOING, "only an open transaction is aborted"
    if context.bumps_epochs:
        return context.decided(state, _bumped(context, known, False), reply)
    prepared = known.changed(
        status=Status.PREPARE_ABORT,
        epoch=min(known.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        updated_ms=context.now_ms,
        next_producer_id=NO_ID,
        client_version=0,
    )
    return context.decided(state, prepared, reply)


def complete(state: TransactionsState, context: Context, ended: Transaction) -> Decision[None]:
    """All partitions have their markers; nothing is written for a transaction that is in another state by now."""
    known = state.get(ended.transactional_id)
    if known is None or (known.status, known.producer_id, known.epoch) != (
        ended.status,
        ended.producer_id,
        ended.epoch,
    ):
        return Decision((), None)
    return context.decided(state, completed(known, context.now_ms), None)


def completed(prepared: Transaction, now_ms: int) -> Transaction:
    """A transaction after its end."""
    has_next = prepared.client_version >= EPOCH_BUMPING and prepared.next_producer_id != NO_ID
    return prepared.changed(
        status=_completed(prepared.status is Status.PREPARE_COMMIT),
        producer_id=prepared.next_producer_id if has_next else prepared.producer_id,
        epoch=0 if has_next else prepared.epoch,
        next_producer_id=NO_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def resume(state: TransactionsState, context: Context, transactional_id: str) -> Decision[None]:
    """Tell the partitions of a transaction whose end was decided, if that is still to be done."""
    known = state.get(transactional_id)
    if known is None or not known.status.is_being_ended:
        return Decision((), None)
    return Decision((), None, answers=((context.ending(known), known),))


def _prepared(commit: bool) -> Status:
    return Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT


def _completed(commit: bool) -> Status:
    return Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT


def _wrong(known: Transaction, commit: bool) -> InvalidTxnState:
    wanted = "committed" if commit else "aborted"
    return InvalidTxnState(f"{known.transactional_id} is {known.status.label} and cannot be {wanted}")
