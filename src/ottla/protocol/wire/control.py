"""Control records, which brokers write into partitions for other brokers and for read_committed consumers.

The key of a control record is version i16 and type i16. The value of a transaction marker (type abort or commit) is
version i16 and coordinator epoch i32. The values of the other types are declared messages. Later versions may only
append fields, so these readers accept them.
"""

import struct
from enum import IntEnum

from ottla.protocol.wire.batch import NO_LEADER_EPOCH
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record. Types of later releases are UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(kind: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(0, kind)


def control_type(record: Record) -> ControlType:
    """Return the type of a record of a control batch."""
    if record.key is None or len(record.key) < _KEY.size:
        raise ProtocolError(f"control record with key {record.key!r}")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise ProtocolError(f"control record of version {version}")
    return ControlType(kind) if ControlType.ABORT <= kind <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def coordinator_epoch(record: Record) -> int:
    """Return the epoch of the transaction coordinator that wrote a marker. A fenced coordinator's epoch is lower."""
    if record.value is None or len(record.value) < _MARKER.size:
        raise ProtocolError(f"transaction marker with value {record.value!r}")
    version, epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise ProtocolError(f"transaction marker of version {version}")
    return int(epoch)


def transaction_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Build the batch that ends a transaction on a partition: one control record without a sequence."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    return build_batch(
        [Record(base_offset, timestamp, key, _MARKER.pack(0, coordinator_epoch))],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
