"""Validation of batches before the leader appends them, and the changes that topic settings make to them.

`validate_batch` takes one batch as a producer sent it, checks the header, the checksum and every record, and returns
the batch to store: the same buffer if only the header changes. It touches nothing but its arguments, so it can run in a
thread. With `brief` it raises TooHeavy instead of work that would hold up an event loop. Large compressed batches are
decompressed, checked and recompressed a piece at a time.

`validate_unchanged` is the fast path, for batches that are stored as they came. It decides in one call of compiled
code, or not at all.

Errors go to the producer as they are. Errors about records name the records, for Produce v8 and later.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, NoReturn

from ottla.protocol.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordError
from ottla.protocol.wire.batch import (
    ATTRIBUTES_LOW_BYTE,
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    TimestampType,
    check_crc,
    check_produced,
    check_stored,
    read_header,
    set_max_timestamp,
)
from ottla.protocol.wire.compression import (
    PIECE_BYTES,
    Compression,
    compress_in_pieces,
    decompress,
    decompress_in_pieces,
)
from ottla.protocol.wire.crc import crc32c
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import (
    MAX_PAYLOAD_BYTES,
    Record,
    build_batch,
    read_keys,
    replace_payload,
    replace_payload_parts,
)
from ottla.protocol.wire.summary import inspect, shift_timestamps, summarize, summarize_pieces
from ottla.protocol.wire.varint import Buffer, read_varint, read_varlong
from ottla.storage.log.producers import Origin
from ottla.storage.log.settings import LogSettings

Data = bytearray | memoryview
Rules = tuple[int, int, int, bool]
"""The largest batch in bytes; how many milliseconds timestamps may be in the past and in the future; whether records
need keys."""

_BRIEF_BYTES: Final = 64 * 1024
"""The largest compressed batch that is decompressed on the event loop ..."""
_BRIEF_PAYLOAD_BYTES: Final = 256 * 1024
"""... if it decompresses to no more than this, which takes gzip about a millisecond."""
_HELD_BYTES: Final = 2 * 1024 * 1024
"""The most bytes that recompression holds in memory; larger batches are decompressed twice."""
_RECORD_HEAD_BYTES: Final = 5 + 1 + 10
"""The largest size of a record's length, attributes and timestamp."""
_CODECS: Final = tuple(Compression)


class TooHeavy(Exception):
    """Validating the batch takes too long for an event loop; a thread must do it."""


def to_api_error(error: ProtocolError) -> RecordError:
    """Return the error that a producer gets for bytes that cannot be accepted."""
    if isinstance(error, CorruptBatch):
        return CorruptMessage(str(error))
    if isinstance(error, BatchTooLarge):
        return MessageTooLarge(str(error))
    return InvalidRecord(str(error))


def validate_batch(
    data: Data, settings: LogSettings, origin: Origin, now_ms: int, *, brief: bool = False
) -> tuple[Data, BatchHeader]:
    """Return the one batch in `data` as it will be stored, with its header. Raise RecordError, or TooHeavy if brief."""
    try:
        header = read_header(data, 0)
        if header.batch_length + LENGTH_PREFIX_BYTES != len(data):
            raise InvalidRecord(f"one batch is expected, of {header.size_bytes} bytes; {len(data)} bytes came")
        _check(data, header, settings, origin)
        return _prepare(data, header, settings, now_ms, brief)
    except ProtocolError as error:
        raise to_api_error(error) from error


def unchanged_rules(settings: LogSettings) -> Rules | None:
    """Return the rules for `validate_unchanged`; None if the topic's settings change batches."""
    if settings.compression is not None or settings.message_timestamp_type is not TimestampType.CREATE:
        return None
    return (
        settings.max_message_bytes,
        settings.message_timestamp_before_max_ms,
        settings.message_timestamp_after_max_ms,
        settings.compact,
    )


def validate_unchanged(data: Data, rules: Rules, now_ms: int) -> tuple[int, ...] | None:
    """Return the header's fields if the batch is valid and stored unchanged. Raise TooHeavy as `validate_batch` does.

    Return None if the fast path cannot decide; the caller then uses `validate_batch`. Nearly all batches take the fast
    path.
    """
    if inspect is None or len(data) < HEADER_BYTES:
        return None
    codec, payload = data[ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK, None
    if codec:
        if codec >= len(_CODECS):
            return None
        payload = _decompress_briefly(data, _CODECS[codec])
    return inspect(data, payload, crc32c(memoryview(data)[ATTRIBUTES_OFFSET:]), now_ms, rules)


def _check(data: Data, header: BatchHeader, settings: LogSettings, origin: Origin) -> None:
    """Raise ProtocolError if the header or the checksum is wrong."""
    if origin is Origin.CLIENT:
        check_produced(header, max_bytes=settings.max_message_bytes)
        if header.attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("producers may not claim that their timestamps are the broker's")
    else:
        check_stored(header)
        if header.batch_length + LENGTH_PREFIX_BYTES > settings.max_message_bytes:
            raise BatchTooLarge(f"batch of {header.size_bytes} bytes where {settings.max_message_bytes} are allowed")
    check_crc(data, 0, header)


def _prepare(
    data: Data, header: BatchHeader, settings: LogSettings, now_ms: int, brief: bool
) -> tuple[Data, BatchHeader]:
    """Check the records and apply the topic's compression and timestamp type."""
    codec, target = header.attributes & COMPRESSION_MASK, settings.compression
    changes_codec = target is not None and target != codec and not header.is_control
    payload, size = None, len(data) - HEADER_BYTES
    if not codec and not changes_codec:
        summary = summarize(data, HEADER_BYTES, header.record_count, header.base_timestamp)
    elif brief:
        if changes_codec:
            raise TooHeavy
        payload = _decompress_briefly(data, header.compression)
        summary = summarize(payload, 0, header.record_count, header.base_timestamp)
    else:
        pieces = _pieces(data, header)
        held, is_all = _take(pieces, _HELD_BYTES if changes_codec else PIECE_BYTES - 1)
        if is_all:
            payload = b"".join(held)
            summary = summarize(payload, 0, header.record_count, header.base_timestamp)
        else:
            summary, size = summarize_pieces(chain(held, pieces), header.record_count, header.base_timestamp)
    latest, earliest, keyless = summary
    is_create_time = settings.message_timestamp_type is TimestampType.CREATE
    if (
        (keyless and settings.compact)
        or (is_create_time and latest > now_ms + settings.message_timestamp_after_max_ms)
        or (is_create_time and earliest < now_ms - settings.message_timestamp_before_max_ms)
    ):
        _reject(data, header, settings, now_ms)
    if changes_codec:
        data = _recompressed(data, header, payload, size, settings)
    elif is_create_time and latest == header.max_timestamp:
        return data, header
    if is_create_time:
        set_max_timestamp(data, 0, latest, TimestampType.CREATE)
    else:
        set_max_timestamp(data, 0, now_ms)
    return data, read_header(data, 0)


def _decompress_briefly(data: Data, codec: Compression) -> bytes:
    """Return the decompressed records; raise TooHeavy if there are too many bytes."""
    if len(data) > _BRIEF_BYTES:
        raise TooHeavy
    try:
        return decompress(codec, memoryview(data)[HEADER_BYTES:], limit=_BRIEF_PAYLOAD_BYTES)
    except ProtocolError:
        # Corrupt, or just too large: the thread that validates the batch next finds out.
        raise TooHeavy from None


def _pieces(data: Data, header: BatchHeader) -> Iterator[Buffer]:
    """Decompress the records a piece at a time."""
    return decompress_in_pieces(header.compression, memoryview(data)[HEADER_BYTES:], limit=MAX_PAYLOAD_BYTES)


def _take(pieces: Iterator[Buffer], most: int) -> tuple[list[Buffer], bool]:
    """Return the first pieces, until they exceed `most` bytes, and whether these are all."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > most:
            return held, False
    return held, True


def _reject(data: Data, header: BatchHeader, settings: LogSettings, now_ms: int) -> NoReturn:
    """Raise the error that names the invalid records."""
    bad: list[tuple[int, str]] = []
    is_create_time = settings.message_timestamp_type is TimestampType.CREATE
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    bad_times = False
    for number, (_, timestamp, key, _) in enumerate(read_keys(data, 0, header)):
        if settings.compact and key is None:
            bad.append((number, "Compacted topic cannot accept message without key"))
        elif is_create_time and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            bad.append((number, f"Timestamp {timestamp} is out of range: it should be within {earliest} to {latest}"))
            bad_times = True
    assert bad, "a record was invalid, but none is now"
    shown = "; ".join(f"record {number}: {why}" for number, why in bad[:3])
    kind = InvalidTimestamp if bad_times else InvalidRecord
    raise kind(f"{len(bad)} records were rejected, and their batch with them: {shown}", tuple(bad))


def _recompressed(
    data: Data, header: BatchHeader, payload: bytes | None, size: int | None, settings: LogSettings
) -> bytearray:
    """Return the batch in the topic's compression. A payload of None is decompressed in pieces, `size` bytes in all."""
    target, level = settings.compression, settings.compression_level
    assert target is not None
    head = memoryview(next(_pieces(data, header)) if payload is None else payload)[:_RECORD_HEAD_BYTES]
    _, pos = read_varint(head, 0)
    shift, _ = read_varlong(head, pos + 1)
    if header.attributes & DELETE_HORIZON_BIT:
        shift = 0  # the base timestamp is the delete horizon
    if payload is not None and not shift:
        batch = replace_payload(data, header, payload, target, level)
        if len(batch) > settings.max_message_bytes:
            raise BatchTooLarge(f"batch of {len(batch)} bytes when compressed with {target.name.lower()}")
        return batch
    pieces = _pieces(data, header) if payload is None else iter((payload,))
    if shift:
        # As in Kafka, the first record's timestamp becomes the batch's base timestamp.
        header = header._replace(base_timestamp=header.base_timestamp + shift)
        pieces, size = shift_timestamps(pieces, header.record_count, shift), None
    parts = compress_in_pieces(target, pieces, size, level)
    return replace_payload_parts(data, header, parts, target, max_bytes=settings.max_message_bytes)


def rebuild(
    header: BatchHeader,
    kept: list[Record],
    *,
    compression: Compression | None = None,
    level: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """Build the batch again from the given records. Offsets, producer and timestamps of the header stay."""
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
