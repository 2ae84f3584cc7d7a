"""Conversion of transactions to records of `__transaction_state` and back.

Version 0, written until transaction.version is 1, has no previous and next producer ids and no client version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ottla.coordinators.transactions.state import (
    NOTHING_UNRECORDED,
    STATUS_BY_NUMBER,
    TopicPartition,
    Transaction,
    TransactionsState,
    TransactionStatus,
    UnrecordedFields,
)
from ottla.protocol.messages.records.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.storage.state_machine.entries import Entry, Marker, Stored

TOPIC: Final = "__transaction_state"
_FLEXIBLE_RECORDS: Final = 1


def transaction_record(transaction: Transaction, transaction_version: int) -> Stored:
    """Return the record of a transaction at a level of transaction.version."""
    partitions: list[PartitionsSchema] | None = None
    if transaction.status is not TransactionStatus.EMPTY:
        numbers: dict[str, list[int]] = {}
        for topic, number in sorted(transaction.partitions):
            numbers.setdefault(topic, []).append(number)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=partition_ids) for topic, partition_ids in numbers.items()
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status.number,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    version = 1 if transaction_version >= _FLEXIBLE_RECORDS else 0
    if version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return Stored(TransactionLogKey(transactional_id=transaction.transactional_id), value, version)


def tombstone(transactional_id: str) -> Stored:
    """Return the tombstone of a transactional id."""
    return Stored(TransactionLogKey(transactional_id=transactional_id), None)


def replay(state: TransactionsState, entries: Iterable[Entry]) -> TransactionsState:
    """Return the state after records, for the coordinator that wrote them and for one that loads them."""
    transactions, unrecorded = state.transactions, state.unrecorded
    for entry in entries:
        assert not isinstance(entry, Marker), "__transaction_state has no transaction markers"
        transactional_id = entry.key.transactional_id
        if entry.value is not None:
            transaction = transaction_from_record(
                transactional_id, entry.value, entry.version, unrecorded.get(transactional_id, NOTHING_UNRECORDED)
            )
            transactions = transactions.set(transactional_id, transaction)
        elif transactional_id in transactions:
            transactions = transactions.delete(transactional_id)
            unrecorded = unrecorded.delete(transactional_id) if transactional_id in unrecorded else unrecorded
    return replace(state, transactions=transactions, unrecorded=unrecorded)


def transaction_from_record(
    transactional_id: str, value: TransactionLogValue, version: int | None, unrecorded: UnrecordedFields
) -> Transaction:
    """Return the transaction of a record, with the fields that version 0 does not have."""
    has_all = version is None or version >= _FLEXIBLE_RECORDS
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=STATUS_BY_NUMBER[value.transaction_status],
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id if has_all else unrecorded.previous_producer_id,
        next_producer_id=value.next_producer_id if has_all else unrecorded.next_producer_id,
        client_version=value.client_transaction_version if has_all else unrecorded.client_version,
        last_epoch=unrecorded.last_epoch,
    )
