"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from ottla.coordinators.transactions.state import STATUS_BY_LABEL, TransactionsState, TransactionStatus
from ottla.protocol.errors import TransactionalIdNotFound
from ottla.protocol.messages.rpc import describe_transactions, list_transactions


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str, /) -> object | None: ...


def describe_transaction(state: TransactionsState, transactional_id: str) -> describe_transactions.TransactionState:
    """Describe one transaction; raise TransactionalIdNotFound if it does not exist."""
    transaction = state.get(transactional_id)
    if transaction is None or transaction.status is TransactionStatus.DEAD:
        raise TransactionalIdNotFound(f"transactional id {transactional_id} does not exist")
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(number)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.status.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[describe_transactions.TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )


def unknown_states(names: Collection[str]) -> list[str]:
    """Return the given state names that do not exist."""
    return [name for name in names if name not in STATUS_BY_LABEL]


def find_transactions(
    state: TransactionsState,
    now_ms: int,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
    pattern: Pattern | None = None,
) -> Iterator[list_transactions.TransactionState]:
    """Yield the transactions that pass all given filters."""
    for transaction in state:
        if (
            (states and transaction.status.label not in states)
            or (producer_ids and transaction.producer_id not in producer_ids)
            or (longer_than_ms >= 0 and now_ms - transaction.start_ms <= longer_than_ms)
            or (pattern is not None and not pattern.fullmatch(transaction.transactional_id))
        ):
            continue
        yield list_transactions.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.status.label,
        )
