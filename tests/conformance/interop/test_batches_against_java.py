"""Kafka's classes read record batches of Ottla and vice versa, with every compression."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.wire.batch import TimestampType, check_crc, read_batches
from ottla.protocol.wire.compression import LEVELS, Compression, compress, decompress
from ottla.protocol.wire.control import ControlType, control_type, coordinator_epoch, transaction_marker
from ottla.protocol.wire.records import Record, build_batch, read_records
from tests.conformance.interop.peer_batches import PeerRecord
from tests.support.java_peer import JavaPeer

COMPRESSIONS = list(Compression)
DATA = [b"", b"a", b"kafka" * 10_000, bytes(300_000), Random(7).randbytes(200_000)]


def random_records(random: Random) -> list[Record]:
    offset = random.choice((0, 5, 2**40))
    records = []
    for _ in range(random.choice((1, 2, 50))):
        headers = [
            (random.choice(("", "h", "naïve" * 30)), random.choice((None, b"", b"v" * 200)))
            for _ in range(random.choice((0, 0, 1, 3)))
        ]
        key = random.choice((None, b"", b"key", random.randbytes(300)))
        value = random.choice((None, b"", b"value" * 9, random.randbytes(5_000)))
        records.append(Record(offset, 1_700_000_000_000 + random.randrange(-9_999, 9_999), key, value, headers))
        offset += random.choice((1, 1, 1, 1_000))
    return records


@pytest.mark.parametrize("codec", COMPRESSIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True))
def test_java_reads_what_ottla_writes(java_peer: JavaPeer, codec: Compression, random: Random) -> None:
    written = random_records(random)
    append_time = random.random() < 0.3
    latest = max(record.timestamp for record in written)
    batch = build_batch(
        written,
        base_offset=written[0].offset,
        compression=codec,
        timestamp_type=TimestampType.LOG_APPEND if append_time else TimestampType.CREATE,
        leader_epoch=7,
        producer_id=99,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    (read,) = java_peer.read_batches(bytes(batch))
    assert read.error is None
    assert read.crc_valid
    assert (read.base_offset, read.last_offset, read.size_bytes) == (written[0].offset, written[-1].offset, len(batch))
    assert (read.leader_epoch, read.producer_id, read.producer_epoch) == (7, 99, 3)
    assert read.compression == codec.name.lower()
    assert (read.transactional, read.control) == (True, False)
    assert read.max_timestamp == latest
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in read.records] == [
        (r.offset, latest if append_time else r.timestamp, r.key, r.value, list(r.headers)) for r in written
    ]


@pytest.mark.parametrize("codec", COMPRESSIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True))
def test_ottla_reads_what_java_writes_and_rewrites_the_same_bytes(
    java_peer: JavaPeer, codec: Compression, random: Random
) -> None:
    given_records = random_records(random)
    theirs = java_peer.write_batch(
        [PeerRecord(r.timestamp, r.key, r.value, tuple(r.headers), r.offset) for r in given_records],
        compression=codec.name.lower(),
        base_offset=given_records[0].offset,
        leader_epoch=4,
        producer_id=12,
        producer_epoch=0,
        base_sequence=0,
    )
    ((pos, header),) = read_batches(theirs)
    check_crc(theirs, pos, header)
    assert header.compression == codec
    read = list(read_records(theirs))
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in read] == [
        (r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in given_records
    ]
    ours = build_batch(
        given_records,
        base_offset=given_records[0].offset,
        compression=codec,
        leader_epoch=4,
        producer_id=12,
        producer_epoch=0,
        base_sequence=0,
    )
    if codec is Compression.NONE:
        assert ours == theirs
    assert header._replace(crc=0, batch_length=0) == next(iter(read_batches(ours)))[1]._replace(crc=0, batch_length=0)


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_the_same(java_peer: JavaPeer, commit: bool) -> None:
    theirs = java_peer.write_marker(
        commit=commit, producer_id=5, producer_epoch=6, coordinator_epoch=7, base_offset=8, timestamp=9, leader_epoch=10
    )
    ours = transaction_marker(
        commit=commit, producer_id=5, producer_epoch=6, coordinator_epoch=7, base_offset=8, timestamp=9, leader_epoch=10
    )
    assert ours == theirs
    (record,) = read_records(theirs)
    assert control_type(record) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert coordinator_epoch(record) == 7


@pytest.mark.parametrize("codec", COMPRESSIONS)
@pytest.mark.parametrize("data", DATA, ids=len)
def test_each_side_decompresses_the_bytes_of_the_other(java_peer: JavaPeer, codec: Compression, data: bytes) -> None:
    levels: list[int | None] = [None]
    if codec in LEVELS:
        lowest, highest, default = LEVELS[codec]
        levels += [default, highest, max(lowest, 1)]
    for level in levels:
        assert java_peer.decompress(codec.name.lower(), compress(codec, data, level)) == data
        compressed = java_peer.compress(codec.name.lower(), data, level=level)
        assert decompress(codec, compressed, limit=len(data)) == data
