"""Ottla reads librdkafka's batches, and librdkafka reads Ottla's through its mock broker."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from ottla.protocol.wire.batch import (
    check_crc,
    check_produced,
    check_stored,
    read_header,
    set_max_timestamp,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import transaction_marker
from ottla.protocol.wire.records import Record, build_batch, read_keys, read_records
from tests.support.mock_broker import NOW, MockBroker, as_record, consume, various_records, write_with_librdkafka

each_codec = pytest.mark.parametrize("codec", Compression)


@each_codec
def test_batches_of_librdkafka_are_read(mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"written-by-librdkafka-{codec.name}"
    mock_broker.create(topic)
    written = various_records(1500)
    write_with_librdkafka(mock_broker, topic, codec, written)

    read: list[Record] = []
    seen = set()
    for batch in mock_broker.fetch_all(topic):
        header = read_header(batch)
        check_crc(batch, 0, header)
        check_stored(header)
        check_produced(header._replace(base_offset=0), max_bytes=1 << 20)
        seen.add(header.compression)
        inner = list(read_records(batch))
        assert header.max_timestamp == max(record.timestamp for record in inner)
        assert list(read_keys(batch)) == [(r.offset, r.timestamp, r.key, r.value is None) for r in inner]
        read += inner
    assert read == written
    # librdkafka does not compress a batch if that would not make it smaller.
    assert codec in seen <= {codec, Compression.NONE}


@each_codec
def test_librdkafka_reads_batches_of_ottla(mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"built-by-ottla-{codec.name}"
    mock_broker.create(topic)
    written = various_records(1500)
    for start in (0, 1, 700):
        part = written[start : {0: 1, 1: 700, 700: 1500}[start]]
        renumbered = [record._replace(offset=i) for i, record in enumerate(part)]
        mock_broker.produce(topic, build_batch(renumbered, compression=codec))
    found = consume(mock_broker, topic, len(written))
    assert [as_record(message) for message in found] == written
    assert {message.timestamp()[0] for message in found} == {TIMESTAMP_CREATE_TIME}


@pytest.mark.parametrize(
    ("codec", "level"), [(Compression.GZIP, 9), (Compression.LZ4, 1), (Compression.LZ4, 17), (Compression.ZSTD, 19)]
)
def test_librdkafka_reads_every_compression_level(mock_broker: MockBroker, codec: Compression, level: int) -> None:
    topic = f"level-{level}-of-{codec.name}"
    mock_broker.create(topic)
    mock_broker.produce(topic, build_batch(various_records(300), compression=codec, level=level))
    assert [as_record(message) for message in consume(mock_broker, topic, 300)] == various_records(300)


def test_librdkafka_sees_log_append_time_set_by_ottla(mock_broker: MockBroker) -> None:
    mock_broker.create("append-time")
    batch = build_batch([Record(i, NOW + i, None, b"%d" % i) for i in range(3)])
    set_max_timestamp(batch, 0, NOW + 777)
    mock_broker.produce("append-time", batch)
    found = consume(mock_broker, "append-time", 3)
    assert [message.timestamp() for message in found] == [(TIMESTAMP_LOG_APPEND_TIME, NOW + 777)] * 3


def test_librdkafka_skips_transaction_markers(mock_broker: MockBroker) -> None:
    mock_broker.create("marked")
    mock_broker.produce("marked", build_batch([Record(0, NOW, None, b"before")]))
    marker = transaction_marker(commit=True, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    mock_broker.produce("marked", marker)
    mock_broker.produce("marked", build_batch([Record(0, NOW, None, b"after")]))
    found = consume(mock_broker, "marked", 2)
    assert [(message.offset(), message.value()) for message in found] == [(0, b"before"), (2, b"after")]


def test_stored_batches_are_returned_unchanged_but_for_the_offset(mock_broker: MockBroker) -> None:
    mock_broker.create("stored")
    batch = build_batch(various_records(10))
    for _ in range(2):
        mock_broker.produce("stored", batch)
    first, second = mock_broker.fetch_all("stored")
    assert (read_header(first).base_offset, read_header(second).base_offset) == (0, 10)
    assert first[16:] == second[16:] == batch[16:]
