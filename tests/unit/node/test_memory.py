"""The memory of heavy requests is bounded, and returned to the system afterwards."""

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.node.memory import MemoryTrimmer
from ottla.protocol.messages.rpc.produce import ProduceResponse
from ottla.protocol.wire.batch import HEADER_BYTES, assign_crc
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.compression import Compression, compress_in_pieces
from ottla.protocol.wire.records import Record, build_batch
from ottla.protocol.wire.varint import write_varint
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_heavy_batches import answers, bomb, connect, create, produce, receive
from tests.unit.node.test_node_process import SETTINGS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux shows it")

NOW = 1_700_000_000_000
MIB = 1 << 20
REST_S = 15
"""How long a node may take to give memory back."""
GROWTH_MIB = 48
"""The most that a heavy batch may take, beside what the node takes at rest. Without a bound it is more than 130."""
KEPT_MIB = 16
"""The most that may stay with the node."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path, {**SETTINGS, "message.max.bytes": "8000000"})
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def memory_mib(node: OttlaNode, name: str) -> float:
    """Read a value of the node's memory: VmRSS is the current size, VmHWM the peak."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    found = re.search(rf"{name}:\s*([0-9]+) kB", status)
    assert found is not None
    return int(found.group(1)) / 1024


def compressed(codec: Compression, records: list[bytes], count: int) -> bytearray:
    """Build a batch of `count` records from their encoded pieces."""
    data = build_batch([Record(0, NOW, b"k", b"v")])
    data[HEADER_BYTES:] = b"".join(compress_in_pieces(codec, records, sum(map(len, records))))
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[21:23] = codec.to_bytes(2)
    data[23:27] = (count - 1).to_bytes(4)
    data[57:61] = count.to_bytes(4)
    assign_crc(data, 0, len(data))
    return data


def record(number: int, value_bytes: int) -> bytes:
    body = b"\0\0" + write_varint(number) + b"\2k" + write_varint(value_bytes) + bytes(value_bytes) + b"\0"
    return write_varint(len(body)) + body


def many_records(codec: Compression) -> bytearray:
    """120 MiB of records of a thousand bytes."""
    size = 120 * MIB // 1000
    return compressed(codec, [record(number, 980) for number in range(size)], size)


def one_record(codec: Compression) -> bytearray:
    """One record of 120 MiB."""
    return compressed(codec, [record(0, 120 * MIB)], 1)


HEAVY: dict[str, tuple[Callable[[], bytearray], int]] = {
    "gzip of one record of 400 MB": (bomb, 87),
    "gzip of 400 MB that are no records": (lambda: compressed(Compression.GZIP, [bytes(400 * MIB)], 1), 87),
    "many records in gzip": (lambda: many_records(Compression.GZIP), 0),
    "many records in snappy": (lambda: many_records(Compression.SNAPPY), 0),
    "many records in lz4": (lambda: many_records(Compression.LZ4), 0),
    "many records in zstd": (lambda: many_records(Compression.ZSTD), 0),
    "one record in gzip": (lambda: one_record(Compression.GZIP), 0),
    "one record in zstd": (lambda: one_record(Compression.ZSTD), 0),
}


def warm_up(node: OttlaNode) -> float:
    """Return the memory of an idle node that has loaded the libraries and threads for heavy batches."""
    create(node, "warm", compression_type="gzip")
    with connect(node) as sock:
        sock.sendall(produce("warm", build_batch([Record(0, NOW, b"k", bytes(300_000))], compression=Compression.LZ4)))
        assert answers(sock) == [(0, 0)]
    return memory_mib(node, "VmRSS")


def memory_after(node: OttlaNode, wanted_mib: float) -> float:
    """Return the node's memory after heavy work, once it is below the limit."""
    deadline = time.monotonic() + REST_S
    while memory_mib(node, "VmRSS") > wanted_mib and time.monotonic() < deadline:
        time.sleep(0.1)
    return memory_mib(node, "VmRSS")


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("target", ["producer", "lz4"])
def test_a_heavy_batch_takes_little_memory_and_returns_it(node: OttlaNode, name: str, target: str) -> None:
    make, error = HEAVY[name]
    create(node, "heavy", compression_type=target)
    frame, rest = produce("heavy", make()), warm_up(node)
    with connect(node) as sock:
        for _ in range(3):
            sock.sendall(frame)
            ((code, _),) = answers(sock)
            assert code == error
    assert memory_mib(node, "VmHWM") < rest + GROWTH_MIB
    assert memory_after(node, rest + KEPT_MIB) <= rest + KEPT_MIB


def test_errors_of_many_invalid_records_are_not_kept(node: OttlaNode) -> None:
    create(node, "compacted", cleanup_policy="compact")
    count = 200_000
    bodies = [b"\0\0" + write_varint(number) + b"\1\2v\0" for number in range(count)]  # without keys
    batch = compressed(Compression.GZIP, [write_varint(len(body)) + body for body in bodies], count)
    rest = warm_up(node)
    with connect(node) as sock:
        sock.sendall(produce("compacted", batch))
        (topic,) = decode(ProduceResponse, 9, receive(sock)[1:]).responses
    (part,) = topic.partition_responses
    assert (part.error_code, len(part.record_errors)) == (87, count)
    assert memory_after(node, rest + KEPT_MIB) <= rest + KEPT_MIB


def test_memory_of_many_large_batches_is_returned(node: OttlaNode) -> None:
    create(node, "large")
    frame = produce("large", build_batch([Record(0, NOW, b"k", os.urandom(4 * MIB))], compression=Compression.LZ4))
    rest = warm_up(node)

    def send() -> None:
        with connect(node) as sock:
            sock.sendall(frame * 2)
            assert [code for _ in range(2) for code, _ in answers(sock)] == [0, 0]

    with ThreadPoolExecutor(30) as clients:
        for done in [clients.submit(send) for _ in range(30)]:
            done.result()
    assert memory_after(node, rest + KEPT_MIB) <= rest + KEPT_MIB


class FakeClock:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, action: Callable[[], object]) -> "FakeTimer":
        self.timers.append((delay_s, action))
        return FakeTimer(self)

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for _, action in timers:
            action()


class FakeTimer:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def cancel(self) -> None:
        self._clock.timers.clear()


class TestMemory:
    def make(self) -> None:
        self.clock, self.trimmed = FakeClock(), list[int]()
        self.running: list[asyncio.Future[int]] = []

        def in_thread(action: Callable[..., object], *arguments: object) -> "asyncio.Future[int]":
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self.running.append(future)
            return future

        self.memory = MemoryTrimmer(self.clock.call_later, in_thread, trim=self.trim)

    def trim(self, keep: int) -> int:
        self.trimmed.append(keep)
        return 1

    def test_memory_is_returned_once_after_the_last_work(self) -> None:
        async def run() -> None:
            self.make()
            works = [asyncio.ensure_future(self.memory.run(abs, -1)) for _ in range(2)]
            await asyncio.sleep(0)
            for future, work in zip(list(self.running), works, strict=True):
                assert not self.clock.timers, "work is still running"
                future.set_result(1)
                assert await work == 1
            third = asyncio.ensure_future(self.memory.run(abs, -1))
            await asyncio.sleep(0)
            assert not self.clock.timers, "more work came in time"
            self.running[-1].set_exception(ValueError("it fails"))
            with pytest.raises(ValueError, match="it fails"):
                await third
            self.clock.ring()
            self.clock.ring()
            for thread in threading.enumerate():
                if thread.name == "ottla-memory":
                    thread.join()
            assert self.trimmed == [0]

        asyncio.run(run())
