"""The codec compared with kio and kafka-python: read a fetch request of four partitions, and write its response."""

import io
import subprocess
import sys
from typing import Any

from kafka.protocol.consumer import FetchRequest as KafkaPythonRequest
from kafka.protocol.consumer import FetchResponse as KafkaPythonResponse
from kio.schema.fetch.v12 import request as kio_request
from kio.schema.fetch.v12 import response as kio_response
from kio.serial import entity_reader, entity_writer

from bench.harness.timing import compare
from ottla.protocol.messages.rpc.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.wire.codec import decode, encode, reader_of, writer_of

VERSION = 12
PARTITIONS = 4
RECORDS = bytes(1_000)


def request() -> FetchRequest:
    partitions = [
        FetchPartition(
            partition=p,
            current_leader_epoch=3,
            fetch_offset=12_345 + p,
            last_fetched_epoch=3,
            partition_max_bytes=2**20,
        )
        for p in range(PARTITIONS)
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        session_id=77,
        session_epoch=5,
        topics=[FetchTopic(topic="orders", partitions=partitions)],
    )


def response() -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=p, high_watermark=13_000, last_stable_offset=13_000, log_start_offset=0, records=RECORDS
        )
        for p in range(PARTITIONS)
    ]
    return FetchResponse(session_id=77, responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])


def fetch_round_trip() -> None:
    frame = encode(request(), VERSION)
    view = memoryview(frame)
    body = encode(response(), VERSION)
    answer = decode(FetchResponse, VERSION, body)
    read, write = reader_of(FetchRequest, VERSION), writer_of(FetchResponse, VERSION)

    def ottla_write(message: FetchResponse = answer) -> list[Any]:
        chunks: list[Any] = []
        write(message, chunks.append)
        return chunks

    kio_read = entity_reader(kio_request.FetchRequest)
    kio_answer = entity_reader(kio_response.FetchResponse)(body, 0)[0]
    kio_write = entity_writer(kio_response.FetchResponse)
    kp_answer = KafkaPythonResponse.decode(body, version=VERSION)
    kp_answer._header, kp_answer._version = None, VERSION  # its encoder expects requests, which have these
    assert b"".join(ottla_write()) == body
    assert bytes(kp_answer.encode()) == body

    times = compare(
        {
            "ottla read": lambda: read(view, 0),
            "ottla write": ottla_write,
            "ottla build and write": lambda: ottla_write(response()),
            "kio read": lambda: kio_read(frame, 0),
            "kio write": lambda: kio_write(io.BytesIO(), kio_answer),
            "kafka-python read": lambda: KafkaPythonRequest.decode(frame, version=VERSION),
            "kafka-python write": lambda: kp_answer.encode(),
        }
    )
    for name, seconds in times.items():
        print(f"  {name:<24}{seconds * 1e6:8.2f} µs")
    ours = times["ottla read"] + times["ottla write"]
    for other in ("kio", "kafka-python"):
        print(f"  read + write, {other} / ottla: {(times[f'{other} read'] + times[f'{other} write']) / ours:.1f}x")


def import_time() -> None:
    """Print the CPU of `import ottla` and of the fetch messages, each in a new interpreter."""
    program = "import time; a = time.process_time(); {}; print(time.process_time() - a)"
    every_request = "from ottla.protocol.messages.apis import APIS; [api.request for api in APIS]"
    for statement in ("import ottla", "import ottla.protocol.messages.rpc.fetch", every_request):
        runs = [
            float(
                subprocess.run(
                    [sys.executable, "-c", program.format(statement)], capture_output=True, check=True
                ).stdout
            )
            for _ in range(5)
        ]
        print(f"  {statement:<62}{sorted(runs)[2] * 1e3:8.1f} ms")


def run() -> None:
    print("fetch v12, four partitions, one request and one response:")
    fetch_round_trip()
    print("imports:")
    import_time()
