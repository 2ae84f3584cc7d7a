"""Control batches of the metadata log: built by the leader, and found in what a follower fetched."""

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


class Fetched(NamedTuple):
    """The good batches at the front of fetched records."""

    size_bytes: int
    end_offset: int
    history: list[tuple[int, object]]


def control_batch(messages: Sequence[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of control records, in the versions that Kafka 4.3 writes."""
    return build_batch(
        [
            Record(base_offset + place, now_ms, control_key(_TYPES[type(message)]), encode(message, 0))
            for place, message in enumerate(messages)
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def read_fetched(data: Buffer, *, end_offset: int, last_epoch: int, epoch: int) -> Fetched:
    """What of these records continues a log that ends there, and what they say of voters.

    The tail may be cut short, as a fetch may end inside a batch; from the first batch that is broken, out of place or
    of an epoch that cannot be, nothing is taken: the fetch is then repeated from there.
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
        pass  # what came before the broken batch is good
    return Fetched(size, end_offset, history)


def control_records(data: Buffer, pos: int) -> list[tuple[int, object]]:
    """The records of a control batch that belong into the history, with their offsets."""
    found: list[tuple[int, object]] = []
    for record in read_records(data, pos):
        kind = _HISTORIC.get(control_type(record))
        if kind is not None and record.value is not None:
            found.append((record.offset, decode(kind, 0, record.value)))
    return found
