"""Errors of producing: records, sequences of idempotent producers, and transactions."""

from ottla.protocol.errors.base import ApiError


class RecordError(ApiError):
    """The records of a request were rejected; nothing of the batch was written."""

    record_errors: tuple[tuple[int, str], ...]

    def __init__(self, message: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors  # the index in the batch of each bad record, and its error message


class CorruptMessage(RecordError, code=2, retriable=True, name="CORRUPT_MESSAGE"):
    """The batch does not match its checksum, or is malformed; sending it again may help."""


class MessageTooLarge(RecordError, code=10, name="MESSAGE_TOO_LARGE"):
    """The batch is larger than the topic allows (max.message.bytes); the producer should split it."""


class RecordListTooLarge(RecordError, code=18, name="RECORD_LIST_TOO_LARGE"):
    """The request holds more bytes of records than fit into one log segment."""


class InvalidRequiredAcks(RecordError, code=21, name="INVALID_REQUIRED_ACKS"):
    """The required acks are not 0 (none), 1 (the leader) or -1 (all in-sync replicas)."""


class InvalidTimestamp(RecordError, code=32, name="INVALID_TIMESTAMP"):
    """A record's timestamp is further from the broker's clock than the topic allows."""


class UnsupportedForMessageFormat(RecordError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """The message format of the log does not support the request."""


class UnsupportedCompressionType(RecordError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    """The batch is compressed with a codec that this version of the request does not support."""


class InvalidRecord(RecordError, code=87, name="INVALID_RECORD"):
    """A record breaks a rule of its topic, such as a missing key in a compacted one."""


class ProducerError(ApiError):
    """The producer's id, epoch or sequence does not match the broker's state of the producer."""


class SequenceError(ProducerError):
    """The batch is not the producer's next one for this partition."""


class OutOfOrderSequenceNumber(SequenceError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """The batch leaves a gap after the producer's last sequence; an earlier batch is missing."""


class DuplicateSequenceNumber(SequenceError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    """The batch was already written, too long ago for its offset to be known; the producer may treat it as written."""


class UnknownProducerId(ProducerError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker has no state of this producer; retention may have deleted its records."""


class InvalidProducerEpoch(ProducerError, code=47, name="INVALID_PRODUCER_EPOCH"):
    """The producer's epoch is older than the partition's; it must abort its transaction before it continues."""


class ProducerFenced(ProducerError, code=90, name="PRODUCER_FENCED"):
    """A newer producer took over the transactional id; this one must stop."""


class TransactionError(ApiError):
    """A transaction cannot begin, continue or end."""


class InvalidTxnState(TransactionError, code=48, name="INVALID_TXN_STATE"):
    """The transaction is in a state that does not allow this step."""


class InvalidProducerIdMapping(TransactionError, code=49, name="INVALID_PRODUCER_ID_MAPPING"):
    """The transactional id is unknown, or belongs to another producer id."""


class InvalidTransactionTimeout(TransactionError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    """The transaction timeout is not positive, or exceeds the broker's limit (transaction.max.timeout.ms)."""


class ConcurrentTransactions(TransactionError, code=51, retriable=True, name="CONCURRENT_TRANSACTIONS"):
    """The producer's previous transaction is still being completed; try again soon."""


class TransactionCoordinatorFenced(TransactionError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    """The marker comes from a fenced coordinator; a newer one has written to the partition."""


class TransactionalIdNotFound(TransactionError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    """No transaction with this transactional id exists; it was never created, or it expired."""


class TransactionAbortable(TransactionError, code=120, name="TRANSACTION_ABORTABLE"):
    """The transaction can no longer succeed; the producer should abort it and may then continue."""
