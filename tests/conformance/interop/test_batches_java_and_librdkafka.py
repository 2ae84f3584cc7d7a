"""The third side of the triangle: librdkafka reads batches of Kafka's classes, and vice versa.

With the tests of Ottla against each of them, every implementation reads the batches of both others.
"""

import pytest

from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record
from tests.conformance.interop.peer_batches import PeerRecord
from tests.support.java_peer import JavaPeer
from tests.support.mock_broker import MockBroker, as_record, consume, various_records, write_with_librdkafka


@pytest.mark.parametrize("codec", Compression)
def test_librdkafka_reads_what_java_writes(java_peer: JavaPeer, mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"written-by-java-{codec.name}"
    mock_broker.create(topic)
    written = various_records(500)
    peer_records = [PeerRecord(r.timestamp, r.key, r.value, tuple(r.headers), r.offset) for r in written]
    mock_broker.produce(topic, java_peer.write_batch(peer_records, compression=codec.name.lower()))
    assert [as_record(message) for message in consume(mock_broker, topic, len(written))] == written


@pytest.mark.parametrize("codec", Compression)
def test_java_reads_what_librdkafka_writes(java_peer: JavaPeer, mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"for-java-{codec.name}"
    mock_broker.create(topic)
    written = various_records(500)
    write_with_librdkafka(mock_broker, topic, codec, written)
    read, compressions = [], set()
    for batch in java_peer.read_batches(b"".join(mock_broker.fetch_all(topic))):
        assert batch.error is None
        assert batch.crc_valid
        compressions.add(batch.compression)
        read += [Record(r.offset or 0, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch.records]
    assert read == written
    # librdkafka does not compress a batch if compression would not make it smaller.
    assert codec.name.lower() in compressions <= {codec.name.lower(), "none"}
