"""Sequential transactions of ten records: with librdkafka, which adds partitions, and with transaction version 2."""

import socket
import time
from typing import Any

from confluent_kafka import Producer

from bench.harness.case import TRANSACTIONS, Trial, case
from bench.harness.figures import Figures, compute_percentiles
from bench.harness.node_requests import send_request
from bench.harness.tools import ToolFailed
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.records import Record, build_batch

TIMEOUT_S = 30.0
RECORDS = 10
GOALS = {"records_per_s": 1.0}
_CONCURRENT_TRANSACTIONS = 51


@case(
    "transactions-librdkafka",
    "600 transactions of 10 records, librdkafka",
    needs=TRANSACTIONS,
    goals=GOALS,
    shares=True,
    seconds=18,
)
def transactions_librdkafka(trial: Trial) -> Figures:
    topic = trial.cluster.make_once("topic", lambda: trial.new_topic(1))
    settings = {
        "bootstrap.servers": trial.cluster.bootstrap,
        "transactional.id": f"librdkafka-{time.monotonic_ns()}",
        "linger.ms": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    times = []
    with trial.measured() as figures:
        for _ in range(trial.scaled(600)):
            began = time.perf_counter()
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(topic, bytes(100), partition=0)
            producer.commit_transaction(TIMEOUT_S)
            times.append((time.perf_counter() - began) * 1000)
        figures |= compute_percentiles(times)
        figures["records_per_s"] = RECORDS * len(times) / (sum(times) / 1000)
    return figures


@case(
    "transactions-version2",
    "600 transactions of 10 records, transaction version 2",
    needs=TRANSACTIONS,
    goals=GOALS,
    shares=True,
    seconds=10,
)
def transactions_version2(trial: Trial) -> Figures:
    """Without a client library: the write adds the partition, and EndTxn bumps the epoch (KIP-890)."""
    topic = trial.cluster.make_once("topic", lambda: trial.new_topic(1))
    host, port = trial.cluster.bootstrap.split(",")[0].rsplit(":", 1)
    times = []
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transactional_id = f"version2-{time.monotonic_ns()}"
        _retry_until_done(sock, FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
        initialized = _retry_until_done(
            sock, InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5
        )
        producer_id, epoch = initialized.producer_id, initialized.producer_epoch
        records = [Record(number, 1_700_000_000_000, None, bytes(100)) for number in range(RECORDS)]
        with trial.measured() as figures:
            for _ in range(trial.scaled(600)):
                began = time.perf_counter()
                batch = build_batch(
                    records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
                )
                part = PartitionProduceData(index=0, records=bytes(batch))
                data = [TopicProduceData(name=topic, partition_data=[part])]
                _retry_until_done(
                    sock,
                    ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=data),
                    12,
                )
                ended = _retry_until_done(
                    sock,
                    EndTxnRequest(
                        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
                    ),
                    5,
                )
                producer_id, epoch = ended.producer_id, ended.producer_epoch
                times.append((time.perf_counter() - began) * 1000)
            figures |= compute_percentiles(times)
            figures["records_per_s"] = RECORDS * len(times) / (sum(times) / 1000)
    return figures


def _retry_until_done(sock: socket.socket, request: Any, version: int) -> Any:
    """Retry until the response has no error, as producers do while their last transaction is being ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = send_request(sock, request, version)
        if not (code := _error_of(answer)):
            return answer
        if time.monotonic() > deadline:
            raise ToolFailed(f"{type(request).__name__} still fails after {TIMEOUT_S:g} s: error {code}")
        time.sleep(0.001 if code == _CONCURRENT_TRANSACTIONS else 0.1)


def _error_of(answer: Any) -> int:
    for items in ("coordinators", "responses"):
        if results := getattr(answer, items, None):
            first = results[0]
            return int(first.error_code if items == "coordinators" else first.partition_responses[0].error_code)
    return int(answer.error_code)
