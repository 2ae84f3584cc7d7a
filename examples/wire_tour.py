"""A produce request on the wire: encode it, decode it, and decode it with its end cut off."""

from ottla.protocol.messages.apis import APIS
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, read_records

VERSION = 9


def main() -> None:
    versions = sum(api.latest - api.oldest + 1 for api in APIS)
    print(f"{len(APIS)} APIs, {2 * versions} request and response versions\n")

    written = [Record(n, 1_700_000_000_000 + n, b"key", b"value %d" % n) for n in range(3)]
    batch = build_batch(written, compression=Compression.ZSTD)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        ],
    )
    body = encode(request, VERSION)
    print(f"a produce request, version {VERSION}, {len(body)} bytes:\n{body.hex(' ', 16)}\n")

    read = decode(ProduceRequest, VERSION, body)
    stored = read.topic_data[0].partition_data[0].records
    assert isinstance(stored, memoryview)
    for _, header in read_batches(stored):
        print(f"one batch: {header.record_count} records, {header.compression.name.lower()}, {header.size_bytes} bytes")
    for record in read_records(stored):
        print(f"  offset {record.offset}: {record.key!r} = {record.value!r}")

    try:
        decode(ProduceRequest, VERSION, body[:-30])
    except ProtocolError as error:
        print(f"\nthe same request with its end cut off: {error}")


if __name__ == "__main__":
    main()
