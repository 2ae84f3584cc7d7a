"""The transaction coordinator as `coordinators/runtime` runs it.

Two timers run at intervals: one aborts transactions that exceed their timeout, the other deletes transactional ids that
have not been used for long. A coordinator that takes over continues to send the markers of ended transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import abort_and_fence
from ottla.coordinators.transactions.records import TOPIC, replay, tombstone
from ottla.coordinators.transactions.state import Transaction, TransactionsState
from ottla.metadata.image.changes import Changes
from ottla.protocol.messages.records.transaction_records import TRANSACTION_RECORDS
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Kinds

TIMEOUTS: Final = "timeouts"
EXPIRATION: Final = "expiration"
_MAX_RECORDS: Final = 500
"""The maximum number of records in one decision, which must fit into one batch."""


class TransactionBehaviour:
    """The rules of the transaction coordinator."""

    topic: str = TOPIC
    kinds: Kinds = TRANSACTION_RECORDS

    def __init__(self, context: Callable[[int], Context]) -> None:
        self._context = context
        """Returns the inputs of a decision made at a time."""

    def empty_state(self) -> TransactionsState:
        return TransactionsState()

    def replay(
        self, state: TransactionsState, entries: Iterable[Entry], now_ms: int, offset: int = -1
    ) -> TransactionsState:
        return replay(state, entries)

    def on_loaded(self, state: TransactionsState, now_ms: int) -> Decision[None]:
        context = self._context(now_ms)
        return Decision(
            (),
            None,
            answers=[
                (context.marker_ticket(transaction), transaction)
                for transaction in state
                if transaction.status.is_being_ended
            ],
            timers=(
                (TIMEOUTS, now_ms + context.timeout_check_ms),
                (EXPIRATION, now_ms + context.expiration_check_ms),
            ),
        )

    def on_timer(self, state: TransactionsState, key: Hashable, now_ms: int) -> Decision[None]:
        context = self._context(now_ms)
        return abort_timed_out(state, context) if key == TIMEOUTS else expire_idle_ids(state, context)

    def on_metadata_changed(self, state: TransactionsState, changes: Changes) -> Decision[Any] | None:
        return None

    def parked_tickets(self, state: TransactionsState) -> Iterable[Ticket]:
        return ()


def abort_timed_out(state: TransactionsState, context: Context) -> Decision[None]:
    """Abort the transactions that exceed their timeout."""
    late = [transaction for transaction in state if transaction.is_timed_out(context.now_ms)]
    records: list[Any] = []
    answers: list[tuple[Ticket, Any]] = []
    for transaction in late[:_MAX_RECORDS]:
        aborted = abort_and_fence(state, context, transaction, None)
        state = aborted.state
        records += aborted.records
        answers += aborted.answers
    return Decision(records, None, state=state, answers=answers, timers=((TIMEOUTS, _next_check_ms(context, late)),))


def expire_idle_ids(state: TransactionsState, context: Context) -> Decision[None]:
    """Delete the transactional ids that have not been used for long."""
    until_ms = context.now_ms - context.expiration_ms
    idle = [transaction for transaction in state if transaction.status.is_over and transaction.updated_ms <= until_ms]
    next_check_ms = context.now_ms if len(idle) > _MAX_RECORDS else context.now_ms + context.expiration_check_ms
    return Decision(
        [tombstone(transaction.transactional_id) for transaction in idle[:_MAX_RECORDS]],
        None,
        timers=((EXPIRATION, next_check_ms),),
    )


def _next_check_ms(context: Context, late: list[Transaction]) -> int:
    return context.now_ms if len(late) > _MAX_RECORDS else context.now_ms + context.timeout_check_ms
