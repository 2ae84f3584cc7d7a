"""The records of a fetch response that a consumer sees."""

import pytest

from ottla.client.fetched_records import Chunk, unpack
from ottla.protocol.errors import CorruptMessage
from ottla.protocol.messages.rpc.fetch import AbortedTransaction, PartitionData
from ottla.protocol.wire.batch import assign_crc, read_header
from ottla.protocol.wire.control import transaction_marker
from ottla.protocol.wire.records import Record, build_batch


def batch(base: int, count: int, *, producer: int = -1) -> bytearray:
    records = [Record(base + at, 1000 + base + at, None, b"%d" % (base + at)) for at in range(count)]
    if producer < 0:
        return build_batch(records, base_offset=base)
    return build_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(base: int, producer: int, *, commit: bool) -> bytearray:
    return transaction_marker(
        commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=base
    )


def read(
    *parts: bytearray, offset: int = 0, stop: int | None = None, committed: bool = True, aborted: object = ()
) -> list[Chunk]:
    listed = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]  # type: ignore[attr-defined]
    data = PartitionData(records=b"".join(parts), aborted_transactions=listed, high_watermark=99)
    return list(unpack("t", 0, data, offset=offset, stop=stop, committed=committed))


def offsets(chunks: list[Chunk]) -> list[int]:
    return [record.offset for chunk in chunks for record in chunk.records]


def test_a_batch_is_trimmed_to_the_offset_and_the_stop() -> None:
    chunks = read(batch(0, 4), batch(4, 4), batch(8, 4), offset=2, stop=6)
    assert offsets(chunks) == [2, 3, 4, 5]
    assert chunks[-1].next_offset == 6


def test_a_partial_batch_at_the_end_is_left_to_the_next_fetch() -> None:
    chunks = read(batch(0, 2), batch(2, 2)[:-1])
    assert offsets(chunks) == [0, 1]
    assert chunks[-1].next_offset == 2


def test_aborted_transactions_are_hidden_and_committed_ones_are_not() -> None:
    parts = [
        batch(0, 1, producer=7),  # 0: aborted
        batch(1, 1, producer=8),  # 1: committed
        batch(2, 1),  # 2: in no transaction
        batch(3, 1, producer=7),  # 3: aborted
        marker(4, 7, commit=False),
        batch(5, 1, producer=7),  # 5: the same producer's next one
        marker(6, 8, commit=True),
        marker(7, 7, commit=True),
    ]
    chunks = read(*parts, aborted=[(7, 0)])
    assert offsets(chunks) == [1, 2, 5]
    assert chunks[-1].next_offset == 8
    assert offsets(read(*parts, committed=False)) == [0, 1, 2, 3, 5]


def test_a_producer_that_aborts_twice_is_hidden_twice() -> None:
    parts = [
        batch(0, 1, producer=7),
        marker(1, 7, commit=False),
        batch(2, 1, producer=7),
        marker(3, 7, commit=True),
        batch(4, 1, producer=7),
        marker(5, 7, commit=False),
    ]
    assert offsets(read(*parts, aborted=[(7, 4), (7, 0)])) == [2]


def test_a_transaction_that_began_before_the_fetch_is_hidden_up_to_its_marker() -> None:
    parts = [marker(11, 7, commit=False), batch(12, 1, producer=7), marker(13, 7, commit=True)]
    assert offsets(read(*parts, offset=11, aborted=[(7, 3)])) == [12]


def test_corrupt_bytes_are_an_error_with_an_offset() -> None:
    broken = batch(0, 2)
    broken[-1] ^= 1
    with pytest.raises(CorruptMessage, match=r"topic 't', partition 0, after offset 0: the header's CRC is"):
        read(broken)
    broken = batch(0, 2)
    broken[65] ^= 0x7F
    assign_crc(broken, 0, read_header(broken).size_bytes)
    with pytest.raises(CorruptMessage):
        read(broken)
