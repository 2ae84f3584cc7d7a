"""A producer with a transactional id takes it over, or goes on after an error: InitProducerId.

Whoever comes without an id and an epoch of its own fences all others. One that has both goes on only if nobody else has
come meanwhile (KIP-360); it may repeat the request if the answer got lost. A transaction that is open is aborted first,
and the producer asks again.
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
    """What a producer says it has."""

    producer_id: int
    epoch: int


def check_init(context: Context, timeout_ms: int, *, two_phase: bool, keep_prepared: bool) -> int:
    """The timeout that a producer gets; raises if it cannot have what it asks for."""
    if two_phase and not context.is_two_phase_enabled:
        raise TransactionalIdAuthorizationFailed("two-phase commit is not enabled here")
    if keep_prepared:
        raise UnsupportedVersion("a prepared transaction cannot be kept")
    if two_phase:
        return NO_TIMEOUT_MS
    if not 0 < timeout_ms <= context.max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"a timeout of {timeout_ms} ms, where 1 to {context.max_timeout_ms} are allowed"
        )
    return timeout_ms


def initialize_producer(
    state: TransactionsState,
    context: Context,
    transactional_id: str,
    timeout_ms: int,
    expected: ExpectedProducer | None,
) -> Decision[InitProducerIdResponse | ConcurrentTransactions]:
    """Give a producer its id and epoch."""
    transaction = state.get(transactional_id)
    if transaction is None:
        transaction = Transaction(transactional_id, context.take_producer_id(), NO_EPOCH, timeout_ms)
    if expected is not None and not _may_continue(transaction, expected):
        raise ProducerFenced(f"{transactional_id} belongs to producer {transaction.producer_id} by now")
    if transaction.status.is_being_ended:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
    if transaction.status is TransactionStatus.ONGOING:
        # The epoch that fences is given to nobody; the producer asks again, and gets one above it.
        reply = ConcurrentTransactions(f"the open transaction of {transactional_id} is aborted first")
        return abort_and_fence(state, context, transaction, reply)
    if transaction.is_exhausted and (expected is None or expected.epoch == transaction.epoch):
        chosen = transaction.changed(
            producer_id=context.take_producer_id(),
            epoch=0,
            last_epoch=NO_EPOCH if expected is None else transaction.epoch,
        )
    else:
        chosen = _with_next_epoch(transaction, expected)
    chosen = chosen.changed(
        previous_producer_id=transaction.producer_id,
        status=TransactionStatus.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=context.now_ms,
    )
    response = InitProducerIdResponse(producer_id=chosen.producer_id, producer_epoch=chosen.epoch)
    return context.write(state, chosen, response)


def _may_continue(transaction: Transaction, expected: ExpectedProducer) -> bool:
    """Whether a producer can be the one that is known; its epoch is looked at when it is raised."""
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
        return (
            transaction  # the same request again: nobody else can have come, for that would have wiped the last epoch
        )
    raise ProducerFenced(f"{transaction.transactional_id} has epoch {transaction.epoch} by now, not {expected.epoch}")
