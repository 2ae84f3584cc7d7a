"""Partitions join a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and what brokers ask before they append.

A producer of transaction.version 2 adds partitions by writing to them: their leaders ask for it (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.state import Status, TopicPartition, Transaction, TransactionsState
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAbortable,
)
from ottla.storage.state_machine.decision import Decision


def add(
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
    known = _of_producer(state, transactional_id, producer_id, epoch)
    added = frozenset(partitions)
    is_open = known.status is Status.ONGOING
    if is_open and added <= known.partitions:
        return Decision((), reply)
    context.check_client(client_version)
    grown = known.changed(
        status=Status.ONGOING,
        partitions=known.partitions | added,
        start_ms=known.start_ms if is_open else context.now_ms,
        updated_ms=context.now_ms,
        client_version=client_version,
    )
    return context.decided(state, grown, reply)


def verify(
    state: TransactionsState,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ApiError | None]:
    """Which partitions are part of the open transaction; raises if the producer has none."""
    known = _of_producer(state, transactional_id, producer_id, epoch)
    return {
        partition: None
        if partition in known.partitions
        else TransactionAbortable(f"{partition.topic}-{partition.partition} was not added to the transaction")
        for partition in partitions
    }


def _of_producer(state: TransactionsState, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
    """The transaction, if it is this producer's and may grow."""
    known = state.get(transactional_id)
    if known is None or known.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{transactional_id} is not of producer {producer_id}")
    if known.epoch != epoch:
        raise ProducerFenced(f"{transactional_id} has epoch {known.epoch}, not {epoch}")
    if known.status.is_being_ended:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
    return known
