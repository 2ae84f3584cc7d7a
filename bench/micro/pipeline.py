"""The Spark connector without Spark: records to Arrow columns and back. Spark jobs are the cases `spark`."""

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench.harness.timing import compare
from ottla.protocol.wire.batch import HEADER_BYTES, read_header
from ottla.protocol.wire.records import Record, build_batch
from ottla.spark.connector import columns, rows
from ottla.spark.connector.columns import TYPES, ColumnDecoder, DecompressedBatch
from ottla.spark.connector.rows import Rows

BATCH = 1000


def run() -> None:
    """Print the figures of one core, without Spark and without a network."""
    print("million records per CPU-second    decode   decode in Python   encode   encode in Python")
    for size in (100, 1000):
        batch = build_batch([Record(n, n, b"%016d" % n, random.randbytes(size)) for n in range(BATCH)])
        batches = [DecompressedBatch(read_header(batch), memoryview(batch)[HEADER_BYTES:])] * 10
        decoder = ColumnDecoder(pa.schema([(name, TYPES[name]) for name in list(TYPES)[:7]]), "orders", 0)
        decoded = decoder.decode(batches, 0, 1 << 62)
        indices = np.arange(decoded.num_rows, dtype=np.int32)
        buffer = bytearray(decoded.num_rows * (size + 40))

        def encode(
            decoded: pa.RecordBatch = decoded, indices: rows.Indices = indices, buffer: bytearray = buffer
        ) -> None:
            Rows(decoded.column("key"), decoded.column("value"), None, decoded.num_rows).encode(
                indices, 0, buffer, 0, 0
            )

        def decode(decoder: ColumnDecoder = decoder, batches: list[DecompressedBatch] = batches) -> None:
            decoder.decode(batches, 0, 1 << 62)

        seconds = compare(
            {
                "decode": decode,
                "decode in Python": _in_python(decode),
                "encode": encode,
                "encode in Python": _in_python(encode),
            },
            rounds=5,
        )
        print(f"{size:>10} B" + "".join(f"{10 * BATCH / cpu_s / 1e6:16.2f}" for cpu_s in seconds.values()))


def _in_python(work: Callable[[], None]) -> Callable[[], None]:
    def without_compiled_code() -> None:
        compiled = columns.compiled, rows.compiled
        columns.compiled = rows.compiled = None
        try:
            work()
        finally:
            columns.compiled, rows.compiled = compiled

    return without_compiled_code
