"""The endpoints of the transaction coordinator, and of brokers that have a part in transactions."""

from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
    write_txn_markers,
)
from ottla.broker.requests.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    add_partitions_to_txn.add_partitions_to_txn,
    add_offsets_to_txn.add_offsets_to_txn,
    end_txn.end_txn,
    write_txn_markers.write_txn_markers,
    describe_transactions.describe_transactions,
    list_transactions.list_transactions,
)
