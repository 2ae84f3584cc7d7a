"""A producer with a transactional id takes it over, or goes on after an error: InitProducerId.

Whoever comes without an id and an epoch of its own fences all others. One that has both goes on only if nobody else has
come meanwhile (KIP-360); it may repeat the request if the answer got lost. A transaction that is open is aborted first,
and the producer asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import fence
from ottla.coordinators.transactions.state import (
    NO_EPOCH,
    NO_TIME,
    NO_TIMEOUT_MS,
    Status,
    Transaction,
    TransactionsState,
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


class Expected(NamedTuple):
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


def init(
    state: TransactionsState, context: Context, transactional_id: str, timeout_ms: int, expected: Expected | None
) -> Decision[InitProducerIdResponse | ConcurrentTransactions]:
    """Give a producer its id and epoch."""
    known = state.get(transactional_id)
    if known is None:
        known = Transaction(transactional_id, context.take_producer_id(), NO_EPOCH, timeout_ms)
    if expected is not None and not _may_be(known, expected):
        raise ProducerFenced(f"{transactional_id} belongs to producer {known.producer_id} by now")
    if known.status.is_being_ended:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
    if known.status is Status.ONGOING:
        # The epoch that fences is given to nobody; the producer asks again, and gets one above it.
        reply = ConcurrentTransactions(f"the open transaction of {transactional_id} is aborted first")
        return fence(state, context, known, reply)
    if known.is_exhausted and (expected is None or expected.epoch == known.epoch):
        chosen = known.changed(
            producer_id=context.take_producer_id(), epoch=0, last_epoch=NO_EPOCH if expected is None else known.epoch
        )
    else:
        chosen = _with_next_epoch(known, expected)
    chosen = chosen.changed(
        previous_producer_id=known.producer_id,
        status=Status.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=context.now_ms,
    )
    response = InitProducerIdResponse(producer_id=chosen.producer_id, producer_epoch=chosen.epoch)
    return context.decided(state, chosen, response)


def _may_be(known: Transaction, expected: Expected) -> bool:
    """Whether a producer can be the one that is known; its epoch is looked at when it is raised."""
    return (
        known.epoch == NO_EPOCH
        or expected.producer_id == known.producer_id
        or (expected.producer_id == known.previous_producer_id and is_exhausted(expected.epoch))
    )


def _with_next_epoch(known: Transaction, expected: Expected | None) -> Transaction:
    if expected is None:
        return known.changed(epoch=known.epoch + 1, last_epoch=NO_EPOCH)
    if known.epoch == NO_EPOCH or (expected.epoch == known.epoch and not known.is_exhausted):
        return known.changed(epoch=known.epoch + 1, last_epoch=known.epoch)
    if expected.epoch == known.last_epoch:
        return known  # the same request again: nobody else can have come, for that would have wiped the last epoch
    raise ProducerFenced(f"{known.transactional_id} has epoch {known.epoch} by now, not {expected.epoch}")
