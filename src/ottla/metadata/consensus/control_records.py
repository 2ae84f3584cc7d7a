"""Control batches of the metadata log: building them, and validating fetched batches."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from ottla.protocol.wire.batch import check_crc, check_stored, read_batches
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.control import ControlType, control_key, control_type
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.protocol.wire.varint import Buffer

ControlRecord = LeaderChangeMessage | KRaftVersionRecord | VotersRecord
_TYPES: dict[type, ControlType] = {
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}
_HISTORIC: dict[ControlType, type[KRaftVersionRecord] | type[VotersRecord]] = {
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


class ValidBatches(NamedTuple):
    """The valid batches at the start of fetched data."""

    size_bytes: int
    end_offset: int
    history: list[tuple[int, object]]


def control_batch(messages: Sequence[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """Return one batch of control records, in the versions that Kafka 4.3 writes."""
    return build_batch(
        [
            Record(base_offset + index, now_ms, control_key(_TYPES[type(message)]), encode(message, 0))
            for index, message in enumerate(messages)
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def read_valid_batches(data: Buffer, *, end_offset: int, last_epoch: int, epoch: int) -> ValidBatches:
    """Return the batches that continue a log with this end, and their voters and kraft.version records.

    A fetch may end inside a batch. Validation stops at the first batch that is corrupt, out of place or of an
    impossible epoch; the next fetch starts there.
    """
    history: list[tuple[int, object]] = []
    size = 0
    try:
        for pos, header in read_batches(data, partial_tail=True):
            check_stored(header)
            check_crc(data, pos, header)
            if header.base_offset != end_offset or not last_epoch <= header.leader_epoch <= epoch:
                break
            if header.is_control:
                history += control_records(data, pos)
            size, end_offset, last_epoch = pos + header.size_bytes, header.next_offset, header.leader_epoch
    except ProtocolError:
        pass  # the batches before the corrupt one are valid
    return ValidBatches(size, end_offset, history)


def control_records(data: Buffer, pos: int) -> list[tuple[int, object]]:
    """Return the voters and kraft.version records of a control batch, with their offsets."""
    history: list[tuple[int, object]] = []
    for record in read_records(data, pos):
        kind = _HISTORIC.get(control_type(record))
        if kind is not None and record.value is not None:
            history.append((record.offset, decode(kind, 0, record.value)))
    return history
