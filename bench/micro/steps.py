"""What the steps of a produce and of a fetch cost, each alone, in microseconds of CPU; and some that were not taken.

One record of 100 bytes in a batch; answers of 64 KiB for a fetch. Sockets are TCP on loopback: a send includes what the
kernel does to have the bytes received.
"""

import asyncio
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.harness.figures import OTTLA
from bench.harness.measure import cpu_seconds
from bench.harness.systems import SYSTEMS, running_cluster
from bench.harness.timing import Work, compare
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.rpc.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.rpc.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.wire.batch import compute_crc
from ottla.protocol.wire.codec import encode, reader_of, writer_of
from ottla.protocol.wire.declare import Writer
from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.log.opening import create_log
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.producers import Origin
from ottla.storage.log.reading import read
from ottla.storage.log.settings import DEFAULT_LOG_SETTINGS
from ottla.storage.log.validation import unchanged_rules, validate_batch, validate_unchanged
from ottla.storage.log_environment import LogEnvironment

VERSION, FETCH_VERSION = 12, 12
NOW_MS = 1_700_000_000_000
LARGE = 64 * 1024
TURNS = 20_000
_TOPIC = "bench-1"


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as stack:
        pair = stack.enter_context(_connection())
        log = create_log(LogEnvironment(), f"{folder}/t-0", "t", 0, DEFAULT_LOG_SETTINGS, now_ms=NOW_MS)
        other = create_log(LogEnvironment(), f"{folder}/u-0", "u", 0, DEFAULT_LOG_SETTINGS, now_ms=NOW_MS)
        _tell("a produce of one record of 100 bytes", _produce_steps(log, pair))
        _tell("a fetch that finds 64 KiB", _fetch_steps(other, pair))
        file = os.open(Path(folder) / "plain", os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, file)
        os.pwrite(file, bytes(LARGE), 0)
        _tell("64 KiB from a file into a socket", _ways_out(file, pair))
    loops()
    whole()


def whole() -> None:
    """Requests to a node, which is charged for all that it does meanwhile."""
    batch = bytes(build_batch([Record(0, NOW_MS, None, bytes(100))]))
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(SYSTEMS[OTTLA], Path(folder) / "node"))
        cluster.create_topics([_TOPIC])
        near = stack.enter_context(socket.create_connection(("127.0.0.1", cluster.nodes[0].port)))
        topics = [TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
        body = encode(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), VERSION)
        header = RequestHeader(
            request_api_key=ApiKey.PRODUCE, request_api_version=VERSION, correlation_id=1, client_id="bench"
        )
        frame = encode(header, 2) + body
        frame = len(frame).to_bytes(4, "big") + frame
        print("\na produce of one record in a node, µs of its CPU")
        for together in (1, 5, 16):
            _ask(near, frame, together, TURNS // 10)
            used = cpu_seconds(cluster.pids)
            _ask(near, frame, together, TURNS)
            print(f"   {f'{together} at a time':<52}{(cpu_seconds(cluster.pids) - used) / TURNS * 1e6:8.2f}")


def _ask(near: socket.socket, frame: bytes, together: int, count: int) -> None:
    """Send requests, some at once; all answers are of the same size."""
    near.sendall(frame)
    size = len(near.recv(4096))
    for _ in range(count // together):
        near.sendall(frame * together)
        left = size * together
        while left:
            left -= len(near.recv(4096))


def _produce_steps(log: PartitionLog, pair: tuple[socket.socket, socket.socket]) -> dict[str, Work]:
    batch = build_batch([Record(0, NOW_MS, None, bytes(100))])
    part = PartitionProduceData(index=0, records=bytes(batch))
    topics = [TopicProduceData(name=_TOPIC, partition_data=[part])]
    request = memoryview(encode(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), VERSION))
    decode = reader_of(ProduceRequest, VERSION)
    done = PartitionProduceResponse(index=0, base_offset=1_000, log_start_offset=0)
    response = ProduceResponse(responses=[TopicProduceResponse(name=_TOPIC, partition_responses=[done])])
    write = writer_of(ProduceResponse, VERSION)
    plain = os.open(f"{log.directory}/plain", os.O_RDWR | os.O_CREAT)
    pieces = [bytes(9), *_pieces(write, response)]
    rules = unchanged_rules(DEFAULT_LOG_SETTINGS)
    assert rules is not None
    return {
        "send and receive the request": _echo(pair, request),
        "decode the request": lambda: decode(request, 0),
        "look at the batch: header, CRC, records": lambda: validate_unchanged(bytearray(batch), rules, NOW_MS),
        "of which the CRC": lambda: compute_crc(batch, 0, len(batch)),
        "a closer look, which a batch with a peculiarity gets": lambda: validate_batch(
            bytearray(batch), DEFAULT_LOG_SETTINGS, Origin.CLIENT, NOW_MS, brief=True
        ),
        "append: the above, offsets, pwrite, index": lambda: log.append_unless_heavy(bytearray(batch), 0, NOW_MS),
        "of which pwrite": lambda: os.pwrite(plain, batch, 0),
        "encode the answer": lambda: _pieces(write, response),
        "send it, 10 pieces, and receive it": _echo(pair, bytes(60), send=lambda sock, _: sock.sendmsg(pieces)),
        "the same joined": _echo(pair, bytes(60), send=lambda sock, _: sock.send(b"".join(pieces))),
    }


def _fetch_steps(log: PartitionLog, pair: tuple[socket.socket, socket.socket]) -> dict[str, Work]:
    batch = build_batch([Record(number, NOW_MS, None, bytes(1_000)) for number in range(64)])
    for _ in range(100):
        log.append(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    part = FetchPartition(partition=0, fetch_offset=64 * 50, partition_max_bytes=LARGE)
    request = memoryview(encode(FetchRequest(topics=[FetchTopic(topic=_TOPIC, partitions=[part])]), FETCH_VERSION))
    decode = reader_of(FetchRequest, FETCH_VERSION)
    write = writer_of(FetchResponse, FETCH_VERSION)

    def answer() -> None:
        found = read(log, 64 * 50, LARGE, Isolation.HIGH_WATERMARK).records
        data = PartitionData(partition_index=0, high_watermark=6_400, records=found)
        _pieces(write, FetchResponse(responses=[FetchableTopicResponse(topic=_TOPIC, partitions=[data])]))

    return {
        "decode the request": lambda: decode(request, 0),
        "find the bytes": lambda: read(log, 64 * 50, LARGE, Isolation.HIGH_WATERMARK),
        "find the bytes, and encode the answer around them": answer,
    }


def _ways_out(file: int, pair: tuple[socket.socket, socket.socket]) -> dict[str, Work]:
    mapped = memoryview(bytes(LARGE))

    def by_sendfile(sock: socket.socket, _: object) -> int:
        return os.sendfile(sock.fileno(), file, 0, LARGE)

    def by_pread(sock: socket.socket, _: object) -> int:
        return sock.send(os.pread(file, LARGE, 0))

    return {
        "sendfile": _echo(pair, mapped, send=by_sendfile),
        "pread and send": _echo(pair, mapped, send=by_pread),
    }


def _pieces(write: Writer, message: Any) -> list[Any]:
    chunks: list[Any] = []
    write(message, chunks.append)
    return chunks


@contextmanager
def _connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGE)
        yield near, far


def _echo(
    pair: tuple[socket.socket, socket.socket],
    data: bytes | memoryview,
    *,
    send: Callable[[socket.socket, bytes | memoryview], int] = lambda sock, data: sock.send(data),
) -> Work:
    """Bytes go out at one end and are taken in at the other, in one thread: neither is counted without the other."""
    near, far = pair
    room = bytearray(LARGE)

    def work() -> None:
        left = send(near, data)
        while left:
            left -= far.recv_into(room)

    return work


def loops() -> None:
    """A request of 200 bytes and an answer of 60, over and over, on the loops that there are."""
    print("\na request and its answer, both ends in one thread, µs of CPU")
    ways: dict[str, Callable[[], float]] = {"asyncio": lambda: _on_loop(asyncio.new_event_loop())}
    try:
        import uvloop
    except ImportError:
        pass
    else:
        ways["uvloop"] = lambda: _on_loop(uvloop.new_event_loop())
    ways["epoll, bare"] = _on_selector
    for name, way in ways.items():
        taken = sorted(way() for _ in range(5))[2]
        print(f"   {name:<52}{taken * 1e6:8.2f}")


def _on_loop(loop: asyncio.AbstractEventLoop) -> float:
    with _connection() as (near, far):
        done = loop.create_future()
        left = [TURNS]
        room = bytearray(200)

        def serve() -> None:
            far.recv_into(room)
            far.send(bytes(60))

        def receive_answer() -> None:
            near.recv_into(room)
            left[0] -= 1
            if left[0]:
                near.send(bytes(200))
            else:
                done.set_result(None)

        loop.add_reader(far.fileno(), serve)
        loop.add_reader(near.fileno(), receive_answer)
        began = time.process_time()
        near.send(bytes(200))
        loop.run_until_complete(done)
        took = time.process_time() - began
        loop.remove_reader(far.fileno())
        loop.remove_reader(near.fileno())
        loop.close()
    return took / TURNS


def _on_selector() -> float:
    with _connection() as (near, far), selectors.EpollSelector() as selector:
        selector.register(far, selectors.EVENT_READ)
        selector.register(near, selectors.EVENT_READ)
        room = bytearray(200)
        left = TURNS
        began = time.process_time()
        near.send(bytes(200))
        poll = selector._selector.poll  # type: ignore[attr-defined]
        ends = {far.fileno(): far}
        while left:
            for number, _ in poll():
                if number in ends:
                    far.recv_into(room)
                    far.send(bytes(60))
                else:
                    near.recv_into(room)
                    left -= 1
                    near.send(bytes(200))
        return (time.process_time() - began) / TURNS


def _tell(title: str, steps: dict[str, Work]) -> None:
    print(f"\n{title}, µs of CPU")
    for name, seconds in compare(steps, rounds=9).items():
        print(f"   {name:<52}{seconds * 1e6:8.2f}")
