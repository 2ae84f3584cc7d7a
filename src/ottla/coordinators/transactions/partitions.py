"""Partitions of a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and the verification before an append.

A producer of transaction.version 2 adds a partition by writing to it, and the partition's leader sends the request
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.state import TopicPartition, Transaction, TransactionsState, TransactionStatus
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAbortable,
)
from ottla.storage.state_machine.decision import Decision


def add_partitions(
    state: TransactionsState,
    context: Context,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    client_version: int,
    reply: Any,
) -> Decision[Any]:
    """Add partitions to the open transaction, or begin a transaction with them."""
    transaction = _find_transaction(state, transactional_id, producer_id, epoch)
    added = frozenset(partitions)
    is_open = transaction.status is TransactionStatus.ONGOING
    if is_open and added <= transaction.partitions:
        return Decision((), reply)
    context.check_client(client_version)
    updated = transaction.changed(
        status=TransactionStatus.ONGOING,
        partitions=transaction.partitions | added,
        start_ms=transaction.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        client_version=client_version,
    )
    return context.write(state, updated, reply)


def verify_partitions(
    state: TransactionsState,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ApiError | None]:
    """Check that partitions are part of the open transaction; return an error for each one that is not."""
    transaction = _find_transaction(state, transactional_id, producer_id, epoch)
    return {
        partition: None
        if partition in transaction.partitions
        else TransactionAbortable(f"{partition.topic}-{partition.partition} is not part of the transaction")
        for partition in partitions
    }


def _find_transaction(state: TransactionsState, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
    """Return the producer's transaction; raise if it cannot take partitions."""
    transaction = state.get(transactional_id)
    if transaction is None or transaction.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} does not belong to producer {producer_id}")
    if transaction.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has producer epoch {transaction.epoch}, not {epoch}")
    if transaction.status.is_being_ended:
        raise ConcurrentTransactions(f"the previous transaction of {transactional_id} is being ended")
    return transaction
