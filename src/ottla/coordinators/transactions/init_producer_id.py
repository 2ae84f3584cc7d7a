"""InitProducerId: a producer takes over a transactional id, or recovers from an error.

A producer without an id and epoch fences all earlier ones. A producer with both keeps its id only if no other producer
has taken over since (KIP-360); it may retry the request if the response was lost. An open transaction is aborted first,
and the producer must retry.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import abort_and_fence
from ottla.coordinators.transactions.state import (
    NO_EPOCH,
    NO_TIME,
    NO_TIMEOUT_MS,
    Transaction,
    TransactionsState,
    TransactionStatus,
    is_exhausted,
)
from ottla.protocol.errors import (
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdResponse
from ottla.storage.state_machine.decision import Decision


class ExpectedProducer(NamedTuple):
    """The producer id and epoch in the request."""

    producer_id: int
    epoch: int


def check_init(context: Context, timeout_ms: int, *, two_phase: bool, keep_prepared: bool) -> int:
    """Return the transaction timeout of a producer; raise if the request is invalid."""
    if two_phase and not context.is_two_phase_enabled:
        raise TransactionalIdAuthorizationFailed("two-phase commit is disabled (transaction.two.phase.commit.enable)")
    if keep_prepared:
        raise UnsupportedVersion("keepPreparedTxn is not supported")
    if two_phase:
        return NO_TIMEOUT_MS
    if not 0 < timeout_ms <= context.max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"the transaction timeout of {timeout_ms} ms is not between 1 and {context.max_timeout_ms} ms"
        )
    return timeout_ms


def initialize_producer(
    state: TransactionsState,
    context: Context,
    transactional_id: str,
    timeout_ms: int,
    expected: ExpectedProducer | None,
) -> Decision[InitProducerIdResponse | ConcurrentTransactions]:
    """Assign a producer its id and epoch."""
    transaction = state.get(transactional_id)
    if transaction is None:
        transaction = Transaction(transactional_id, context.take_producer_id(), NO_EPOCH, timeout_ms)
    if expected is not None and not _may_continue(transaction, expected):
        raise ProducerFenced(f"transactional id {transactional_id} belongs to producer {transaction.producer_id} now")
    if transaction.status.is_being_ended:
        raise ConcurrentTransactions(f"the previous transaction of {transactional_id} is being ended")
    if transaction.status is TransactionStatus.ONGOING:
        # No producer gets the fencing epoch; the retry returns a higher one.
        reply = ConcurrentTransactions(f"the open transaction of {transactional_id} is aborted first")
        return abort_and_fence(state, context, transaction, reply)
    if transaction.is_exhausted and (expected is None or expected.epoch == transaction.epoch):
        assigned = transaction.changed(
            producer_id=context.take_producer_id(),
            epoch=0,
            last_epoch=NO_EPOCH if expected is None else transaction.epoch,
        )
    else:
        assigned = _with_next_epoch(transaction, expected)
    assigned = assigned.changed(
        previous_producer_id=transaction.producer_id,
        status=TransactionStatus.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=context.now_ms,
    )
    response = InitProducerIdResponse(producer_id=assigned.producer_id, producer_epoch=assigned.epoch)
    return context.write(state, assigned, response)


def _may_continue(transaction: Transaction, expected: ExpectedProducer) -> bool:
    """Whether a producer may continue with its id. `_with_next_epoch` checks the epoch."""
    return (
        transaction.epoch == NO_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.epoch))
    )


def _with_next_epoch(transaction: Transaction, expected: ExpectedProducer | None) -> Transaction:
    if expected is None:
        return transaction.changed(epoch=transaction.epoch + 1, last_epoch=NO_EPOCH)
    if transaction.epoch == NO_EPOCH or (expected.epoch == transaction.epoch and not transaction.is_exhausted):
        return transaction.changed(epoch=transaction.epoch + 1, last_epoch=transaction.epoch)
    if expected.epoch == transaction.last_epoch:
        return transaction  # a retry: a takeover would have cleared the last epoch
    raise ProducerFenced(
        f"{transaction.transactional_id} has producer epoch {transaction.epoch} now, not {expected.epoch}"
    )
