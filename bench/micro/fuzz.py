"""A million mutated frames of all messages in all versions: each is decoded or rejected with a ProtocolError."""

import time
from random import Random

from bench.harness.message_values import Values
from bench.harness.mutations import mutations
from bench.harness.protocol_table import message_classes, message_versions
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.errors import ProtocolError

FRAMES = 1_000_000


def run(seed: int | None = None) -> None:
    seed = time.time_ns() if seed is None else seed
    print(f"  seed {seed}")
    versions = message_versions()
    decoded = rejected = 0
    slowest_s = 0.0
    start = time.process_time()
    for number, (name, version) in enumerate(versions):
        random = Random(f"{seed} {number}")
        cls = message_classes()[name]
        values = Values(random)
        frames = FRAMES // len(versions) + 1
        for _ in range(frames // 50 + 1):
            original = encode(values.message(cls, version), version)
            for frame in mutations(original, random, 50):
                began = time.perf_counter()
                try:
                    decode(cls, version, frame)
                    decoded += 1
                except ProtocolError:
                    rejected += 1
                slowest_s = max(slowest_s, time.perf_counter() - began)
    cpu_s = time.process_time() - start
    print(f"  {decoded + rejected:,} frames: {decoded:,} decoded, {rejected:,} rejected")
    print(f"  {cpu_s:.0f} s of CPU; the slowest frame took {slowest_s * 1e3:.1f} ms")
