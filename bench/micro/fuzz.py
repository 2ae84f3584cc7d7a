"""A million mutated frames, of all messages in all versions: each is read, or refused with a ProtocolError."""

import time
from random import Random

from bench.harness.message_values import Values
from bench.harness.mutations import mutations
from bench.harness.protocol_table import cases, declared
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.errors import ProtocolError

FRAMES = 1_000_000


def run(seed: int | None = None) -> None:
    seed = time.time_ns() if seed is None else seed
    print(f"  seed {seed}")
    every = cases()
    read = refused = 0
    slowest = 0.0
    start = time.process_time()
    for turn, (name, version) in enumerate(every):
        random = Random(f"{seed} {turn}")
        cls = declared()[name]
        values = Values(random)
        share = FRAMES // len(every) + 1
        for _ in range(share // 50 + 1):
            written = encode(values.message(cls, version), version)
            for frame in mutations(written, random, 50):
                began = time.perf_counter()
                try:
                    decode(cls, version, frame)
                    read += 1
                except ProtocolError:
                    refused += 1
                slowest = max(slowest, time.perf_counter() - began)
    taken = time.process_time() - start
    print(f"  {read + refused:,} frames: {read:,} read, {refused:,} refused")
    print(f"  {taken:.0f} s of CPU, the slowest frame took {slowest * 1e3:.1f} ms")
