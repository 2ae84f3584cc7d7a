"""Partitions join a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and what brokers ask before they append.

A producer of transaction.version 2 adds partitions by writing to them: their leaders ask for it (KIP-890).
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
    """Add partitions to the open transaction, or begin one with them."""
    transaction = _find_transaction(state, transactional_id, producer_id, epoch)
    added = frozenset(partitions)
    is_open = transaction.status is TransactionStatus.ONGOING
    if is_open and added <= transaction.partitions:
        return Decision((), reply)
    context.check_client(client_version)
    grown = transaction.changed(
        status=TransactionStatus.ONGOING,
        partitions=transaction.partitions | added,
        start_ms=transaction.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        client_version=client_version,
    )
    return context.write(state, grown, reply)


def verify_partitions(
    state: TransactionsState,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ApiError | None]:
    """Which partitions are part of the open transaction; raises if the producer has none."""
    transaction = _find_transaction(state, transactional_id, producer_id, epoch)
    return {
        partition: None
        if partition in transaction.partitions
        else TransactionAbortable(f"{partition.topic}-{partition.partition} was not added to the transaction")
        for partition in partitions
    }


def _find_transaction(state: TransactionsState, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
    """The transaction, if it is this producer's and may grow."""
    transaction = state.get(transactional_id)
    if transaction is None or transaction.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} is not of producer {producer_id}")
    if transaction.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has epoch {transaction.epoch}, not {epoch}")
    if transaction.status.is_being_ended:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
    return transaction
