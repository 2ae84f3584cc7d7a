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
    Transaction,
    TransactionsState,
    TransactionStatus,
)
from ottla.protocol.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from ottla.protocol.messages.rpc.end_txn import EndTxnResponse
from ottla.storage.state_machine.decision import Decision


def end_transaction(
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
    transaction = state.get(transactional_id)
    if transaction is None:
        raise InvalidProducerIdMapping(f"{transactional_id} is not known")
    if client_version >= EPOCH_BUMPING:
        return _end_with_epoch_bump(state, context, transaction, producer_id, epoch, commit)
    if transaction.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} is not of producer {producer_id}")
    if transaction.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has epoch {transaction.epoch}, not {epoch}")
    if transaction.status is TransactionStatus.ONGOING:
        prepared = transaction.changed(
            status=_prepare_status(commit), updated_ms=context.now_ms, next_producer_id=NO_ID, client_version=0
        )
        return context.write(state, prepared, EndTxnResponse())
    if transaction.status is _complete_status(commit):
        return Decision((), EndTxnResponse())
    if transaction.status is _prepare_status(commit):
        raise ConcurrentTransactions(f"the transaction of {transactional_id} is being ended")
    raise _invalid_state_error(transaction, commit)


def _end_with_epoch_bump(
    state: TransactionsState, context: Context, transaction: Transaction, producer_id: int, epoch: int, commit: bool
) -> Decision[EndTxnResponse]:
    # A repeat of the request in which the epochs ran out: the producer has another id by now.
    is_repeat_across_ids = (
        transaction.previous_producer_id == producer_id and epoch == MAX_EPOCH - 1 and transaction.epoch == 0
    )
    is_repeat = transaction.epoch == epoch + 1 or is_repeat_across_ids
    if transaction.producer_id != producer_id and not is_repeat_across_ids:
        raise InvalidProducerIdMapping(f"{transaction.transactional_id} is not of producer {producer_id}")
    status = transaction.status
    if status.is_being_ended:
        is_valid = transaction.epoch == epoch + 1
    elif status is TransactionStatus.ONGOING or status is TransactionStatus.EMPTY:
        is_valid = transaction.epoch == epoch
    else:
        is_valid = is_repeat or transaction.epoch == epoch
    if not is_valid:
        raise ProducerFenced(f"{transaction.transactional_id} has epoch {transaction.epoch}, not {epoch}")
    context.check_client(EPOCH_BUMPING)
    if status is TransactionStatus.ONGOING:
        return _end_with_new_epoch(state, context, transaction, commit)
    if status is _prepare_status(commit):
        raise ConcurrentTransactions(f"the transaction of {transaction.transactional_id} is being ended")
    if is_repeat and status is _complete_status(commit):
        return Decision((), EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch))
    if status.is_over and not is_repeat and not commit:
        return _end_with_new_epoch(state, context, transaction, commit)
    raise _invalid_state_error(transaction, commit)


def _end_with_new_epoch(
    state: TransactionsState, context: Context, transaction: Transaction, commit: bool
) -> Decision[EndTxnResponse]:
    prepared = _prepared_with_new_epoch(context, transaction, commit)
    given = completed_transaction(prepared, context.now_ms)
    reply = EndTxnResponse(producer_id=given.producer_id, producer_epoch=given.epoch)
    return context.write(state, prepared, reply)


def _prepared_with_new_epoch(context: Context, transaction: Transaction, commit: bool) -> Transaction:
    is_open = transaction.status is TransactionStatus.ONGOING
    return transaction.changed(
        status=_prepare_status(commit),
        epoch=min(transaction.epoch + 1, MAX_EPOCH),
        last_epoch=transaction.epoch,
        start_ms=transaction.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        # The highest epoch is written to the markers, and given to nobody.
        next_producer_id=context.take_producer_id() if transaction.is_exhausted else NO_ID,
        client_version=EPOCH_BUMPING,
    )


def abort_and_fence(state: TransactionsState, context: Context, transaction: Transaction, reply: Any) -> Decision[Any]:
    """Abort an open transaction that its producer does not end, and fence the producer."""
    assert transaction.status is TransactionStatus.ONGOING, "only an open transaction is aborted"
    if context.bumps_epochs:
        return context.write(state, _prepared_with_new_epoch(context, transaction, False), reply)
    prepared = transaction.changed(
        status=TransactionStatus.PREPARE_ABORT,
        epoch=min(transaction.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        updated_ms=context.now_ms,
        next_producer_id=NO_ID,
        client_version=0,
    )
    return context.write(state, prepared, reply)


def complete_transaction(state: TransactionsState, context: Context, ended: Transaction) -> Decision[None]:
    """All partitions have their markers; nothing is written for a transaction that is in another state by now."""
    transaction = state.get(ended.transactional_id)
    if transaction is None or (transaction.status, transaction.producer_id, transaction.epoch) != (
        ended.status,
        ended.producer_id,
        ended.epoch,
    ):
        return Decision((), None)
    return context.write(state, completed_transaction(transaction, context.now_ms), None)


def completed_transaction(prepared: Transaction, now_ms: int) -> Transaction:
    """A transaction after its end."""
    has_next = prepared.client_version >= EPOCH_BUMPING and prepared.next_producer_id != NO_ID
    return prepared.changed(
        status=_complete_status(prepared.status is TransactionStatus.PREPARE_COMMIT),
        producer_id=prepared.next_producer_id if has_next else prepared.producer_id,
        epoch=0 if has_next else prepared.epoch,
        next_producer_id=NO_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def resume_ending(state: TransactionsState, context: Context, transactional_id: str) -> Decision[None]:
    """Tell the partitions of a transaction whose end was decided, if that is still to be done."""
    transaction = state.get(transactional_id)
    if transaction is None or not transaction.status.is_being_ended:
        return Decision((), None)
    return Decision((), None, answers=((context.marker_ticket(transaction), transaction),))


def _prepare_status(commit: bool) -> TransactionStatus:
    return TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT


def _complete_status(commit: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT


def _invalid_state_error(transaction: Transaction, commit: bool) -> InvalidTxnState:
    wanted = "committed" if commit else "aborted"
    return InvalidTxnState(f"{transaction.transactional_id} is {transaction.status.label} and cannot be {wanted}")
