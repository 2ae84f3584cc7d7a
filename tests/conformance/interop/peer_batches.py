"""Record batches as the Java peer reads and writes them: JSON, with bytes in hexadecimal digits."""

from dataclasses import asdict, dataclass
from typing import Any, TypedDict


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """A record to write, or as read. For writing, no offset means the next one; a control type implies the key."""

    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = None
    control_type: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class PeerBatch:
    """A record batch as Java reads it; `error` says why not all records could be read."""

    size_bytes: int
    magic: int
    crc: int
    crc_valid: bool
    base_offset: int
    last_offset: int
    leader_epoch: int
    compression: str
    timestamp_type: str
    base_timestamp: int | None
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    transactional: bool
    control: bool
    delete_horizon_ms: int | None
    count: int | None
    error: str | None
    records: tuple[PeerRecord, ...]


class BatchOptions(TypedDict, total=False):
    """Options for writing a batch: gzip, lz4 and zstd have levels; `last_offset` is for a compacted batch."""

    compression: str
    level: int | None
    magic: int
    base_offset: int
    last_offset: int | None
    leader_epoch: int
    timestamp_type: str  # CreateTime, LogAppendTime
    log_append_time: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon_ms: int | None


DEFAULT_OPTIONS: BatchOptions = {
    "compression": "none",
    "level": None,
    "magic": 2,
    "base_offset": 0,
    "last_offset": None,
    "leader_epoch": -1,
    "timestamp_type": "CreateTime",
    "log_append_time": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "transactional": False,
    "control": False,
    "delete_horizon_ms": None,
}


def show_record(record: PeerRecord) -> dict[str, Any]:
    return {
        **asdict(record),
        "key": show_bytes(record.key),
        "value": show_bytes(record.value),
        "headers": [(name, show_bytes(value)) for name, value in record.headers],
    }


def parse_batch(batch: dict[str, Any]) -> PeerBatch:
    return PeerBatch(**{**batch, "records": tuple(parse_record(record) for record in batch["records"])})


def parse_record(record: dict[str, Any]) -> PeerRecord:
    headers = tuple((name, parse_bytes(value)) for name, value in record["headers"])
    return PeerRecord(
        **{**record, "key": parse_bytes(record["key"]), "value": parse_bytes(record["value"]), "headers": headers}
    )


def show_bytes(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def parse_bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)
