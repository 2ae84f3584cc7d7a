"""Records of `__transaction_state`."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import Int8, Int16, Int32, Int64


@stored(key=0, versions="0")
class TransactionLogKey:
    """Key of a transaction: its transactional id."""

    transactional_id: str = since("0+", default="")


@struct
class PartitionsSchema:
    topic: str = since("0+", default="")
    partition_ids: list[Int32] = since("0+", factory=list)


@stored(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transaction: its producer, its status and its partitions."""

    producer_id: Int64 = since("0+", default=0)
    producer_epoch: Int16 = since("0+", default=0)
    transaction_timeout_ms: Int32 = since("0+", default=0)
    transaction_status: Int8 = since("0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = since("0+", factory=list)
    transaction_last_update_timestamp_ms: Int64 = since("0+", default=0)
    transaction_start_timestamp_ms: Int64 = since("0+", default=0)
    previous_producer_id: Int64 = since("1+", default=-1, tag=0)
    next_producer_id: Int64 = since("1+", default=-1, tag=1)
    client_transaction_version: Int16 = since("1+", default=0, tag=2)
    next_producer_epoch: Int16 = since("1+", default=-1, tag=3)


TRANSACTION_RECORDS: dict[int, tuple[type, type]] = {
    0: (TransactionLogKey, TransactionLogValue),
}
"""The classes of key and value, by the type at the start of a record's key."""
