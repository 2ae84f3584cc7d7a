"""The end of a transaction: EndTxn, and aborts by the coordinator.

The coordinator first writes the outcome (PrepareCommit or PrepareAbort), which is then final. Each partition gets a
marker, and when all have theirs the transaction is complete.

Up to transaction.version 1 the producer epoch stays the same, so a late request of one transaction looks like a request
of the next. From version 2 on (KIP-890) each end bumps the epoch: an epoch identifies one transaction, and EndTxn with
the previous epoch is a retry. A producer may then also abort a transaction that is not open, because it cannot know
whether its first write, which would have opened it, arrived. For transactions that are not open:

          | Abort           | Commit
          | retry    new    | retry    new
    Empty | fenced   bump   | fenced   invalid
  aborted | done     bump   | invalid  invalid
committed | invalid  bump   | done     invalid
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
    """Commit or abort a producer's transaction."""
    transaction = state.get(transactional_id)
    if transaction is None:
        raise InvalidProducerIdMapping(f"transactional id {transactional_id} does not exist")
    if client_version >= EPOCH_BUMPING:
        return _end_with_epoch_bump(state, context, transaction, producer_id, epoch, commit)
    if transaction.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} does not belong to producer {producer_id}")
    if transaction.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has producer epoch {transaction.epoch}, not {epoch}")
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
    # A retry of the request that exhausted the epochs: the producer has another id since.
    is_retry_across_ids = (
        transaction.previous_producer_id == producer_id and epoch == MAX_EPOCH - 1 and transaction.epoch == 0
    )
    is_retry = transaction.epoch == epoch + 1 or is_retry_across_ids
    if transaction.producer_id != producer_id and not is_retry_across_ids:
        raise InvalidProducerIdMapping(f"{transaction.transactional_id} does not belong to producer {producer_id}")
    status = transaction.status
    if status.is_being_ended:
        is_valid = transaction.epoch == epoch + 1
    elif status is TransactionStatus.ONGOING or status is TransactionStatus.EMPTY:
        is_valid = transaction.epoch == epoch
    else:
        is_valid = is_retry or transaction.epoch == epoch
    if not is_valid:
        raise ProducerFenced(f"{transaction.transactional_id} has producer epoch {transaction.epoch}, not {epoch}")
    context.check_client(EPOCH_BUMPING)
    if status is TransactionStatus.ONGOING:
        return _end_with_new_epoch(state, context, transaction, commit)
    if status is _prepare_status(commit):
        raise ConcurrentTransactions(f"the transaction of {transaction.transactional_id} is being ended")
    if is_retry and status is _complete_status(commit):
        return Decision((), EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch))
    if status.is_over and not is_retry and not commit:
        return _end_with_new_epoch(state, context, transaction, commit)
    raise _invalid_state_error(transaction, commit)


def _end_with_new_epoch(
    state: TransactionsState, context: Context, transaction: Transaction, commit: bool
) -> Decision[EndTxnResponse]:
    prepared = _prepared_with_new_epoch(context, transaction, commit)
    ended = completed_transaction(prepared, context.now_ms)
    reply = EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
    return context.write(state, prepared, reply)


def _prepared_with_new_epoch(context: Context, transaction: Transaction, commit: bool) -> Transaction:
    is_open = transaction.status is TransactionStatus.ONGOING
    return transaction.changed(
        status=_prepare_status(commit),
        epoch=min(transaction.epoch + 1, MAX_EPOCH),
        last_epoch=transaction.epoch,
        start_ms=transaction.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        # Markers use the highest epoch; no producer ever gets it.
        next_producer_id=context.take_producer_id() if transaction.is_exhausted else NO_ID,
        client_version=EPOCH_BUMPING,
    )


def abort_and_fence(state: TransactionsState, context: Context, transaction: Transaction, reply: Any) -> Decision[Any]:
    """Abort an open transaction and fence its producer."""
    assert transaction.status is TransactionStatus.ONGOING, "only an open transaction can be aborted"
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
    """Complete a transaction whose partitions have their markers, unless its state changed since."""
    transaction = state.get(ended.transactional_id)
    if transaction is None or (transaction.status, transaction.producer_id, transaction.epoch) != (
        ended.status,
        ended.producer_id,
        ended.epoch,
    ):
        return Decision((), None)
    return context.write(state, completed_transaction(transaction, context.now_ms), None)


def completed_transaction(prepared: Transaction, now_ms: int) -> Transaction:
    """Return the transaction in its completed state."""
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
    """Send the markers of a transaction that is being ended, if it still is."""
    transaction = state.get(transactional_id)
    if transaction is None or not transaction.status.is_being_ended:
        return Decision((), None)
    return Decision((), None, answers=((context.marker_ticket(transaction), transaction),))


def _prepare_status(commit: bool) -> TransactionStatus:
    return TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT


def _complete_status(commit: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT


def _invalid_state_error(transaction: Transaction, commit: bool) -> InvalidTxnState:
    action = "committed" if commit else "aborted"
    return InvalidTxnState(f"{transaction.transactional_id} is {transaction.status.label} and cannot be {action}")
