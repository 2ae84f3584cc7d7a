"""The cost of each step of a produce and of a fetch, and of some alternatives, in microseconds of CPU.

A batch has one record of 100 bytes; a fetch response has 64 KiB. Sockets are TCP on loopback: a send includes the
kernel's work to receive the bytes.
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
        _print_costs("a produce of one record of 100 bytes", _produce_steps(log, pair))
        _print_costs("a fetch of 64 KiB", _fetch_steps(other, pair))
        file = os.open(Path(folder) / "plain", os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, file)
        os.pwrite(file, bytes(LARGE), 0)
        _print_costs("64 KiB from a file into a socket", _file_to_socket(file, pair))
    measure_event_loops()
    measure_node()


def measure_node() -> None:
    """Print the CPU of a node for each produce request, with one or more requests in flight."""
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
        for in_flight in (1, 5, 16):
            _send_requests(near, frame, in_flight, TURNS // 10)
            used = cpu_seconds(cluster.pids)
            _send_requests(near, frame, in_flight, TURNS)
            print(f"   {f'{in_flight} at a time':<52}{(cpu_seconds(cluster.pids) - used) / TURNS * 1e6:8.2f}")


def _send_requests(near: socket.socket, frame: bytes, in_flight: int, count: int) -> None:
    """Send requests and receive their responses, which all have the same size."""
    near.sendall(frame)
    size = len(near.recv(4096))
    for _ in range(count // in_flight):
        near.sendall(frame * in_flight)
        left = size * in_flight
        while left:
            left -= len(near.recv(4096))


def _produce_steps(log: PartitionLog, pair: tuple[socket.socket, socket.socket]) -> dict[str, Work]:
    batch = build_batch([Record(0, NOW_MS, None, bytes(100))])
    part = PartitionProduceData(index=0, records=bytes(batch))
    topics = [TopicProduceData(name=_TOPIC, partition_data=[part])]
    request = memoryview(encode(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), VERSION))
    decode = reader_of(ProduceRequest, VERSION)
    partition = PartitionProduceResponse(index=0, base_offset=1_000, log_start_offset=0)
    response = ProduceResponse(responses=[TopicProduceResponse(name=_TOPIC, partition_responses=[partition])])
    write = writer_of(ProduceResponse, VERSION)
    plain = os.open(f"{log.directory}/plain", os.O_RDWR | os.O_CREAT)
    chunks = [bytes(9), *_encode_chunks(write, response)]
    rules = unchanged_rules(DEFAULT_LOG_SETTINGS)
    assert rules is not None
    return {
        "send and receive the request": _echo(pair, request),
        "decode the request": lambda: decode(request, 0),
        "validate the batch: header, CRC, records": lambda: validate_unchanged(bytearray(batch), rules, NOW_MS),
        "of which the CRC": lambda: compute_crc(batch, 0, len(batch)),
        "full validation, for batches off the fast path": lambda: validate_batch(
            bytearray(batch), DEFAULT_LOG_SETTINGS, Origin.CLIENT, NOW_MS, brief=True
        ),
        "append: the above, offsets, pwrite, index": lambda: log.append_unless_heavy(bytearray(batch), 0, NOW_MS),
        "of which pwrite": lambda: os.pwrite(plain, batch, 0),
        "encode the response": lambda: _encode_chunks(write, response),
        "send it in 10 chunks, and receive it": _echo(pair, bytes(60), send=lambda sock, _: sock.sendmsg(chunks)),
        "send it as one chunk, and receive it": _echo(
            pair, bytes(60), send=lambda sock, _: sock.send(b"".join(chunks))
        ),
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

    def respond() -> None:
        records = read(log, 64 * 50, LARGE, Isolation.HIGH_WATERMARK).records
        data = PartitionData(partition_index=0, high_watermark=6_400, records=records)
        _encode_chunks(write, FetchResponse(responses=[FetchableTopicResponse(topic=_TOPIC, partitions=[data])]))

    return {
        "decode the request": lambda: decode(request, 0),
        "find the bytes": lambda: read(log, 64 * 50, LARGE, Isolation.HIGH_WATERMARK),
        "find the bytes, and encode the response": respond,
    }


def _file_to_socket(file: int, pair: tuple[socket.socket, socket.socket]) -> dict[str, Work]:
    mapped = memoryview(bytes(LARGE))

    def by_sendfile(sock: socket.socket, _: object) -> int:
        return os.sendfile(sock.fileno(), file, 0, LARGE)

    def by_pread(sock: socket.socket, _: object) -> int:
        return sock.send(os.pread(file, LARGE, 0))

    return {
        "sendfile": _echo(pair, mapped, send=by_sendfile),
        "pread and send": _echo(pair, mapped, send=by_pread),
    }


def _encode_chunks(write: Writer, message: Any) -> list[Any]:
    chunks: list[Any] = []
    write(message, chunks.append)
    return chunks


@contextmanager
def _connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Open a TCP connection on loopback, and yield both ends."""
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
    """Return work that sends bytes at one end and receives them at the other, in one thread."""
    near, far = pair
    buffer = bytearray(LARGE)

    def work() -> None:
        left = send(near, data)
        while left:
            left -= far.recv_into(buffer)

    return work


def measure_event_loops() -> None:
    """Print the CPU of a request of 200 bytes and a response of 60 bytes, on each available event loop."""
    print("\na request and its response, both ends in one thread, µs of CPU")
    loops: dict[str, Callable[[], float]] = {"asyncio": lambda: _on_loop(asyncio.new_event_loop())}
    try:
        import uvloop
    except ImportError:
        pass
    else:
        loops["uvloop"] = lambda: _on_loop(uvloop.new_event_loop())
    loops["epoll alone"] = _on_selector
    for name, measure in loops.items():
        seconds = sorted(measure() for _ in range(5))[2]
        print(f"   {name:<52}{seconds * 1e6:8.2f}")


def _on_loop(loop: asyncio.AbstractEventLoop) -> float:
    with _connection() as (near, far):
        done = loop.create_future()
        left = [TURNS]
        buffer = bytearray(200)

        def serve() -> None:
            far.recv_into(buffer)
            far.send(bytes(60))

        def receive_response() -> None:
            near.recv_into(buffer)
            left[0] -= 1
            if left[0]:
                near.send(bytes(200))
            else:
                done.set_result(None)

        loop.add_reader(far.fileno(), serve)
        loop.add_reader(near.fileno(), receive_response)
        began = time.process_time()
        near.send(bytes(200))
        loop.run_until_complete(done)
        cpu_s = time.process_time() - began
        loop.remove_reader(far.fileno())
        loop.remove_reader(near.fileno())
        loop.close()
    return cpu_s / TURNS


def _on_selector() -> float:
    with _connection() as (near, far), selectors.EpollSelector() as selector:
        selector.register(far, selectors.EVENT_READ)
        selector.register(near, selectors.EVENT_READ)
        buffer = bytearray(200)
        left = TURNS
        began = time.process_time()
        near.send(bytes(200))
        poll = selector._selector.poll  # type: ignore[attr-defined]
        ends = {far.fileno(): far}
        while left:
            for number, _ in poll():
                if number in ends:
                    far.recv_into(buffer)
                    far.send(bytes(60))
                else:
                    near.recv_into(buffer)
                    left -= 1
                    near.send(bytes(200))
        return (time.process_time() - began) / TURNS


def _print_costs(title: str, steps: dict[str, Work]) -> None:
    print(f"\n{title}, µs of CPU")
    for name, seconds in compare(steps, rounds=9).items():
        print(f"   {name:<52}{seconds * 1e6:8.2f}")
