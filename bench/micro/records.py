"""The cost of validating every produced record: compiled, in Python, and compared with the checksum.

The figures are microseconds of CPU per batch.
"""

from random import Random

from bench.harness.timing import compare
from ottla.protocol.wire.batch import HEADER_BYTES, check_crc, read_header
from ottla.protocol.wire.compression import Compression, decompress
from ottla.protocol.wire.records import Record, build_batch
from ottla.protocol.wire.summary import compiled_scan, summarize, summarize_in_python

NOW = 1_700_000_000_000
SHAPES = {
    "64 KiB, 1,000 bytes each": (63, 1000),
    "64 KiB, 100 bytes each": (580, 100),
    "16 KiB, 100 bytes each": (145, 100),
    "one record of 100 bytes": (1, 100),
}


def run() -> None:
    if compiled_scan is None:
        print("the compiled modules were not built")
    print(f"{'batch':>28} {'compiled':>10} {'Python':>10} {'checksum':>10} {'decompress lz4':>15}")
    random = Random(7)  # the same bytes in every run
    for name, (count, size) in SHAPES.items():
        records = [Record(number, NOW + number // 10, None, random.randbytes(size // 2) * 2) for number in range(count)]
        data = memoryview(build_batch(records))
        compressed = bytes(build_batch(records, compression=Compression.LZ4)[HEADER_BYTES:])
        header = read_header(data)
        costs = compare(
            {
                "compiled": lambda: summarize(data, HEADER_BYTES, count, NOW),  # noqa: B023 (called in this iteration)
                "Python": lambda: summarize_in_python(data, HEADER_BYTES, count, NOW),  # noqa: B023
                "checksum": lambda: check_crc(data, 0, header),  # noqa: B023
                "decompress lz4": lambda: decompress(Compression.LZ4, compressed, limit=1 << 20),  # noqa: B023
            }
        )
        compiled_cost, python, checksum, decompression = (cost * 1e6 for cost in costs.values())
        print(f"{name:>28} {compiled_cost:10.2f} {python:10.1f} {checksum:10.2f} {decompression:15.1f}")
