"""Errors of writing: the records, the numbering that keeps them in order and unrepeated, and transactions."""

from ottla.protocol.errors.base import ApiError


class RecordError(ApiError):
    """The records of a request cannot be taken; nothing of the batch was written."""

    record_errors: tuple[tuple[int, str], ...]

    def __init__(self, message: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors  # the place in the batch of each bad record, and what is wrong with it


class CorruptMessage(RecordError, code=2, retriable=True, name="CORRUPT_MESSAGE"):
    """The batch does not match its checksum, or its shape is broken; sending it again may help."""


class MessageTooLarge(RecordError, code=10, name="MESSAGE_TOO_LARGE"):
    """The batch is larger than the topic takes (max.message.bytes); the producer should split it."""


class RecordListTooLarge(RecordError, code=18, name="RECORD_LIST_TOO_LARGE"):
    """The request holds more bytes of records than fit into one segment of the log."""


class InvalidRequiredAcks(RecordError, code=21, name="INVALID_REQUIRED_ACKS"):
    """The producer asked for acknowledgements other than none (0), the leader (1) or all in sync (-1)."""


class InvalidTimestamp(RecordError, code=32, name="INVALID_TIMESTAMP"):
    """A record's timestamp is further from the broker's clock than the topic allows."""


class UnsupportedForMessageFormat(RecordError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """The format in which the log keeps its records cannot express what was asked."""


class UnsupportedCompressionType(RecordError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    """The batch is compressed with a codec that this version of the request does not allow."""


class InvalidRecord(RecordError, code=87, name="INVALID_RECORD"):
    """A record breaks a rule of its topic, such as a missing key in a compacted one."""


class ProducerError(ApiError):
    """What the producer says about itself does not fit what the broker remembers of it."""


class SequenceError(ProducerError):
    """The batch is not the producer's next one for this partition."""


class OutOfOrderSequenceNumber(SequenceError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """The batch leaves a gap after the producer's last one; an earlier batch is missing."""


class DuplicateSequenceNumber(SequenceError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    """The batch was written before, too long ago for its offset to be remembered; the producer may take it as done."""


class UnknownProducerId(ProducerError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker remembers nothing of this producer; its records may have been deleted by retention."""


class InvalidProducerEpoch(ProducerError, code=47, name="INVALID_PRODUCER_EPOCH"):
    """The producer's epoch is older than the partition's; the transaction must be aborted before it goes on."""


class ProducerFenced(ProducerError, code=90, name="PRODUCER_FENCED"):
    """A newer producer took over the transactional id; this one must stop."""


class TransactionError(ApiError):
    """A transaction cannot begin, grow or end as asked."""


class InvalidTxnState(TransactionError, code=48, name="INVALID_TXN_STATE"):
    """The transaction is in a state that does not allow this step."""


class InvalidProducerIdMapping(TransactionError, code=49, name="INVALID_PRODUCER_ID_MAPPING"):
    """The transactional id is not known, or belongs to another producer id."""


class InvalidTransactionTimeout(TransactionError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    """The transaction's time limit is not above zero, or above the broker's (transaction.max.timeout.ms)."""


class ConcurrentTransactions(TransactionError, code=51, retriable=True, name="CONCURRENT_TRANSACTIONS"):
    """The producer's previous transaction is still being completed; try again soon."""


class TransactionCoordinatorFenced(TransactionError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    """The marker comes from a coordinator that was replaced; a newer one has written to the partition."""


class TransactionalIdNotFound(TransactionError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    """There is no transaction of that id to describe; it never was, or it expired."""


class TransactionAbortable(TransactionError, code=120, name="TRANSACTION_ABORTABLE"):
    """The transaction cannot succeed any more; the producer should abort it and may go on with the next."""
