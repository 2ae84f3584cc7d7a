"""Clients with librdkafka in their own process: `python -m bench.harness.load KIND JSON` prints figures as JSON.

`produce`     several producers, each with its own connection, at full speed
`consume`     several consumers that each read their share of the partitions from the beginning
`end-to-end`  records at a fixed rate; the time from when a record was due until each consumer has it
`one-by-one`  a producer that sends each record after the previous one was acknowledged
`wide`        records to a few partitions at a fixed rate, for a consumer whose session has many partitions

Records are due at fixed times, even if earlier ones are still in flight, so that a stall shows in the latency of every
record that it delayed.
"""

import itertools
import json
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.harness import measure
from bench.harness.figures import Figures, compute_percentiles
from bench.harness.sessions import Reader, SessionConsumer, ShareConsumer
from bench.harness.tools import ToolFailed, run_tool

TIMEOUT_S = 60
_due = struct.Struct(">Q")
_PROBE = _due.pack(0)


def librdkafka(kind: str, **arguments: Any) -> Figures:
    """Run a client of this kind in its own process, and return its figures."""
    command = [sys.executable, "-m", "bench.harness.load", kind, json.dumps(arguments)]
    figures: Figures = json.loads(run_tool(command).splitlines()[-1])
    return figures


def produce(
    *, bootstrap: str, topic: str, producers: int, records: int, record_bytes: int, settings: dict[str, str]
) -> Figures:
    """Produce records with several producers in turn."""
    latencies: list[float] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        latencies.append((message.latency() or 0.0) * 1000)

    all_producers = [
        Producer({"bootstrap.servers": bootstrap, "on_delivery": delivered, **settings}) for _ in range(producers)
    ]
    value = bytes(record_bytes)
    began = time.perf_counter()
    for number in range(records):
        producer = all_producers[number % producers]
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            for other in all_producers:
                other.poll(0)
    for producer in all_producers:
        producer.flush(TIMEOUT_S)
    duration_s = time.perf_counter() - began
    if errors or len(latencies) != records:
        raise ToolFailed(
            f"{len(latencies)} of {records} records got a response, {len(errors)} with errors: {errors[:1]}"
        )
    rates = {"records_per_s": records / duration_s, "mb_per_s": records * record_bytes / duration_s / 2**20}
    return rates | compute_percentiles(latencies)


def consume(
    *, bootstrap: str, topic: str, partitions: int, consumers: int, records: int, settings: dict[str, str]
) -> Figures:
    """Read all records of a topic once; each consumer has its own partitions."""
    finished = threading.Semaphore(0)
    counts = [0, 0]
    lock = threading.Lock()
    problems: list[str] = []

    def read(number: int) -> None:
        consumer = _consumer(bootstrap, settings)
        assigned = range(number, partitions, consumers)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in assigned])
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while counts[0] < records and time.monotonic() < deadline:
                messages = consumer.consume(2_000, 0.1)
                if messages:
                    size = sum(_length(message, problems) for message in messages)
                    with lock:
                        counts[0] += len(messages)
                        counts[1] += size
                    deadline = time.monotonic() + TIMEOUT_S
        finally:
            finished.release()
            consumer.close()

    began = time.perf_counter()
    for number in range(consumers):
        threading.Thread(target=read, args=(number,), daemon=True).start()
    for _ in range(consumers):
        finished.acquire()
    duration_s = time.perf_counter() - began
    if problems or counts[0] < records:
        raise ToolFailed(f"{counts[0]} of {records} records were read: {problems[:1]}")
    return {
        "records_per_s": counts[0] / duration_s,
        "mb_per_s": counts[1] / duration_s / 2**20,
        "time_ms": duration_s * 1000,
    }


def end_to_end(
    *,
    bootstrap: str,
    topic: str,
    records_per_s: float,
    seconds: float,
    record_bytes: int,
    consumers: int,
    producer_settings: dict[str, str],
) -> Figures:
    """Measure the latencies of records that are due at a steady rate, for each consumer."""
    records = max(1, round(records_per_s * seconds))
    warm_up = min(round(records_per_s), records)  # the first second opens connections, and is not counted
    latencies_by_consumer: list[list[float]] = [[] for _ in range(consumers)]
    ready = threading.Barrier(consumers + 1)
    problems: list[str] = []

    def read(latencies: list[float]) -> None:
        consumer = _consumer(bootstrap, {"fetch.wait.max.ms": "500"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.consume(1, 1.0)
        ready.wait()
        deadline = time.monotonic() + seconds + TIMEOUT_S
        while len(latencies) < warm_up + records and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2) if records_per_s > 5000 else _poll(consumer):
                now = time.monotonic_ns()
                if _length(message, problems):
                    latencies.append((now - _due.unpack_from(message.value() or b"")[0]) / 1e6)
        consumer.close()

    readers = [threading.Thread(target=read, args=(latencies,), daemon=True) for latencies in latencies_by_consumer]
    for reader in readers:
        reader.start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **producer_settings})
    ready.wait()
    _send_at_rate(producer, topic, warm_up + records, records_per_s, record_bytes)
    for reader in readers:
        reader.join()
    counts = [len(latencies) for latencies in latencies_by_consumer]
    if problems or min(counts) < warm_up + records:
        raise ToolFailed(f"{counts} of {warm_up + records} records arrived: {problems[:1]}")
    return compute_percentiles([latency for latencies in latencies_by_consumer for latency in latencies[warm_up:]])


def one_by_one(*, bootstrap: str, topic: str, records: int, record_bytes: int, settings: dict[str, str]) -> Figures:
    """Measure the time from producing a record until it is acknowledged, with one record in flight."""
    errors: list[KafkaError] = []
    acknowledged: list[int] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)
        acknowledged.append(time.perf_counter_ns())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "on_delivery": delivered, **settings})
    value, latencies = bytes(record_bytes), []
    warm_up = max(10, records // 10)  # the first records open connections, and are not counted
    for number in range(warm_up + records):
        began, deadline = time.perf_counter_ns(), time.monotonic() + TIMEOUT_S
        producer.produce(topic, value)
        while len(acknowledged) <= number and time.monotonic() < deadline:
            producer.poll(1.0)
        if errors or len(acknowledged) <= number:
            raise ToolFailed(f"{len(acknowledged)} records were acknowledged, {len(errors)} with errors: {errors[:1]}")
        latencies.append((acknowledged[number] - began) / 1e6)
    return compute_percentiles(latencies[warm_up:])


def wide(
    *,
    bootstrap: str,
    port: int,
    group: str | None,
    topics: dict[str, int],
    busy: str,
    records_per_s: float,
    records: int,
    record_bytes: int,
    pids: list[int],
) -> Figures:
    """Measure the latencies of records of one topic for a consumer that has all partitions of several topics.

    With a group, it is a share consumer. The figures include the CPU of the servers during that time.
    """
    received: list[bytes] = []
    problems: list[Exception] = []
    is_over = threading.Event()
    reader: Reader = SessionConsumer(port, topics) if group is None else ShareConsumer(port, group, topics)
    latencies: list[float] = []

    def read() -> None:
        try:
            while not is_over.is_set():
                for value in reader.fetch():
                    now = time.monotonic_ns()
                    if len(value) > _due.size:
                        latencies.append((now - _due.unpack_from(value)[0]) / 1e6)
                    received.append(value)
            reader.close()
        except Exception as problem:  # noqa: BLE001 (the main thread raises it)
            problems.append(problem)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    partitions = range(topics[busy])
    _await_partitions(producer, busy, partitions, received, problems)
    used, began_s = measure.cpu_seconds(pids), time.monotonic()
    _send_at_rate(producer, busy, records, records_per_s, record_bytes, partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while len(latencies) < records and not problems and time.monotonic() < deadline:
        time.sleep(0.01)
    figures = {"server_cpu_s": measure.cpu_seconds(pids) - used, "wall_s": time.monotonic() - began_s}
    is_over.set()
    thread.join(TIMEOUT_S)
    if problems or len(latencies) != records:
        raise ToolFailed(f"{len(latencies)} of {records} records arrived: {problems[:1]}")
    return figures | compute_percentiles(latencies)


def _await_partitions(
    producer: Producer, topic: str, partitions: Iterable[int], received: list[bytes], problems: list[Exception]
) -> None:
    """Send records until one of each partition has arrived: a new share group begins at the end of a partition."""
    probes = {_PROBE[:-1] + bytes([number]): number for number in partitions}
    deadline = time.monotonic() + TIMEOUT_S
    while missing := probes.keys() - set(received):
        if problems or time.monotonic() > deadline:
            raise ToolFailed(f"no records arrive from {len(missing)} partitions: {problems[:1]}")
        for value in missing:
            producer.produce(topic, value, partition=probes[value])
        producer.flush(TIMEOUT_S)
        time.sleep(0.5)


def _send_at_rate(
    producer: Producer,
    topic: str,
    records: int,
    records_per_s: float,
    record_bytes: int,
    partitions: Iterable[int] = (-1,),
) -> None:
    """Send records when they are due, to the partitions in turn; -1 leaves the choice to the producer."""
    next_partitions = itertools.cycle(partitions)
    padding = bytes(record_bytes - _due.size)
    interval_ns = 1e9 / records_per_s
    began = time.monotonic_ns()
    for number in range(records):
        due = began + round(number * interval_ns)
        while (early := due - time.monotonic_ns()) > 0:
            producer.poll(0)
            time.sleep(min(early / 1e9, 0.05))
        producer.produce(topic, _due.pack(due) + padding, partition=next(next_partitions))
    if producer.flush(TIMEOUT_S):
        raise ToolFailed("some records were not acknowledged")


def _poll(consumer: Consumer) -> list[Message]:
    """Return the next record as soon as it arrives; `consume` would wait for more."""
    message = consumer.poll(0.2)
    return [] if message is None else [message]


def _consumer(bootstrap: str, settings: dict[str, str]) -> Consumer:
    # By default, librdkafka stops fetching for a second when its queue is full, which penalizes a fast server.
    own = {"enable.auto.commit": False, "fetch.queue.backoff.ms": 1, "log_level": 3}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **own, **settings})


def _length(message: Message, problems: list[str]) -> int:
    error = message.error()
    if error is not None:
        problems.append(str(error))
        return 0
    return len(message.value() or b"")


KINDS: dict[str, Callable[..., Figures]] = {
    "produce": produce,
    "consume": consume,
    "end-to-end": end_to_end,
    "one-by-one": one_by_one,
    "wide": wide,
}


def main() -> None:
    kind, arguments = sys.argv[1:]
    sys.setswitchinterval(0.0005)  # so that consumer threads wait less for the producer's
    print(json.dumps(KINDS[kind](**json.loads(arguments))))


if __name__ == "__main__":
    main()
