"""What a leader asks of the records that it is to append, and the changes that a topic's settings make to them.

`check` looks at headers and checksums and is all that most batches need. `needs_records` tells whether a topic's
settings ask for more, which means to look at every record; `prepare` does that and returns the batch as it is to be
stored. It touches nothing but its arguments, so that it can run in a thread. Errors are what a producer is told; those
about records name them, as answers from Produce v8 on do.
"""

from typing import NoReturn

from ottla.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordError
from ottla.log.producers import Origin
from ottla.log.settings import LogSettings
from ottla.wire.batch import (
    COMPRESSION_MASK,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAX_INT64,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    TimestampType,
    check_crc,
    check_produced,
    check_stored,
    set_max_timestamp,
)
from ottla.wire.compression import Compression
from ottla.wire.errors import ProtocolError
from ottla.wire.records import Record, build_batch, keys, records

Data = bytearray | memoryview


def to_api_error(error: ProtocolError) -> RecordError:
    """What a producer is told about bytes that cannot be accepted."""
    if isinstance(error, CorruptBatch):
        return CorruptMessage(str(error))
    if isinstance(error, BatchTooLarge):
        return MessageTooLarge(str(error))
    return InvalidRecord(str(error))


def check(data: Data, pos: int, header: BatchHeader, settings: LogSettings, origin: Origin) -> None:
    """Raise ProtocolError unless the batch may be appended, as far as header and checksum tell."""
    if origin is Origin.CLIENT:
        check_produced(header, max_bytes=settings.max_message_bytes)
        if header.attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("producers may not claim that their timestamps are the broker's")
    else:
        check_stored(header)
        if header.batch_length + LENGTH_PREFIX_BYTES > settings.max_message_bytes:
            raise BatchTooLarge(f"batch of {header.size_bytes} bytes where {settings.max_message_bytes} are allowed")
    check_crc(data, pos, header)


def needs_records(header: BatchHeader, settings: LogSettings, now_ms: int) -> bool:
    """Whether the batch must be looked into, or stored otherwise than it came."""
    return (
        settings.compact
        or settings.message_timestamp_type is TimestampType.LOG_APPEND
        or (settings.compression is not None and settings.compression != header.attributes & COMPRESSION_MASK)
        or settings.message_timestamp_before_max_ms != MAX_INT64
        or header.max_timestamp > now_ms + settings.message_timestamp_after_max_ms
    )


def prepare(data: Data, header: BatchHeader, settings: LogSettings, now_ms: int) -> Data:
    """Check the records of the one batch in `data`, and return it as the topic stores it.

    The same buffer comes back where only the header changes or nothing does.
    """
    try:
        _check_records(data, header, settings, now_ms)
        data = _recompressed(data, header, settings)
    except ProtocolError as error:
        raise to_api_error(error) from error
    if settings.message_timestamp_type is TimestampType.LOG_APPEND:
        set_max_timestamp(data, 0, now_ms)
    return data


def _check_records(data: Data, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    bad: list[tuple[int, str]] = []
    late = settings.message_timestamp_type is TimestampType.CREATE
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    bad_times = False
    if not settings.compact and not (late and (earliest > 0 or header.max_timestamp > latest)):
        return
    for number, (_, timestamp, key, _) in enumerate(keys(data, 0, header)):
        if settings.compact and key is None:
            bad.append((number, "Compacted topic cannot accept message without key"))
        elif late and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            bad.append((number, f"Timestamp {timestamp} is out of range: it should be within {earliest} to {latest}"))
            bad_times = True
    if bad:
        _reject(bad, bad_times)


def _reject(bad: list[tuple[int, str]], bad_times: bool) -> NoReturn:
    shown = "; ".join(f"record {number}: {why}" for number, why in bad[:3])
    kind = InvalidTimestamp if bad_times else InvalidRecord
    raise kind(f"{len(bad)} records were rejected, and their batch with them: {shown}", tuple(bad))


def _recompressed(data: Data, header: BatchHeader, settings: LogSettings) -> Data:
    target = settings.compression
    if target is None or target == header.attributes & COMPRESSION_MASK:
        return data
    batch = rebuild(header, list(records(data, 0, header)), compression=target, level=settings.compression_level)
    if len(batch) > settings.max_message_bytes:
        raise BatchTooLarge(f"batch of {len(batch)} bytes when compressed with {target.name.lower()}")
    return batch


def rebuild(
    header: BatchHeader,
    kept: list[Record],
    *,
    compression: Compression | None = None,
    level: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """The batch anew with the records given: what its header says of offsets, producer and time stays."""
    return build_batch(
        kept,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        compression=header.compression if compression is None else compression,
        level=level,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT or not kept else None,
        delete_horizon=header.delete_horizon if delete_horizon is None else delete_horizon,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )
