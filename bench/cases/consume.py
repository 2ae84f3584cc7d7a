"""Consuming: what is there, from the page cache, and what is being written; librdkafka and Kafka's own consumer."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

from bench.harness.case import GROUPS, LOAD_GOALS, SHARE_GROUPS, TRANSACTIONS, Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka
from bench.harness.node_requests import TIMEOUT_S, send_request
from bench.harness.tools import ToolFailed, consumer_performance, producer_performance, share_consumer_performance
from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RECORD_BYTES = 1_000
TAILS = 5
MANY_ROUNDS = 6
"""To read takes a second, which says little of one round; to write what is read takes much longer, once."""


def filled(trial: Trial, records: int, partitions: int = 1, *, transaction_ms: int | None = None) -> str:
    """A topic with records in it, in transactions or not, which all rounds of this life read."""

    def fill() -> str:
        topic = trial.new_topic(partitions)
        producer_performance(
            trial.cluster.bootstrap,
            topic,
            records=records,
            record_bytes=RECORD_BYTES,
            settings={"acks": "all" if transaction_ms else "1", "batch.size": "65536"},
            transaction_ms=transaction_ms,
        )
        return topic

    return trial.cluster.make_once(f"{records} in {partitions}, {transaction_ms}", fill)


def consume(
    trial: Trial, *, records: int, partitions: int = 1, consumers: int = 1, transaction_ms: int | None = None
) -> Figures:
    count = trial.scaled(records)
    topic = filled(trial, count, partitions, transaction_ms=transaction_ms)
    with trial.measured() as figures:
        figures |= librdkafka(
            "consume",
            bootstrap=trial.cluster.bootstrap,
            topic=topic,
            partitions=partitions,
            consumers=consumers,
            records=count,
            settings={"isolation.level": "read_committed" if transaction_ms else "read_uncommitted"},
        )
    return figures


@case(
    "consume-2gb", "2 M × 1,000 B, one consumer (librdkafka)", quick=True, warm_rounds=4, goals=LOAD_GOALS, seconds=42
)
def consume_2gb(trial: Trial) -> Figures:
    return consume(trial, records=2_000_000)


@case(
    "consume-10",
    "600 k × 1,000 B, ten consumers (librdkafka) of ten partitions",
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=26,
)
def consume_10(trial: Trial) -> Figures:
    return consume(trial, records=600_000, partitions=10, consumers=10)


@case(
    "consume-java",
    "300 k × 1,000 B, Kafka's consumer in a group of its own",
    needs=GROUPS,
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=20,
)
def consume_java(trial: Trial) -> Figures:
    records = trial.scaled(300_000)
    topic = filled(trial, records)
    with trial.measured() as figures:
        figures |= consumer_performance(trial.cluster.bootstrap, topic, records=records, settings={})
    return figures


@case(
    "consume-share",
    "100 k × 1,000 B, Kafka's share consumer, each record acknowledged",
    needs=SHARE_GROUPS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=24,
)
def consume_share(trial: Trial) -> Figures:
    records = trial.scaled(100_000)
    topic, group = filled(trial, records), f"share-{time.monotonic_ns()}"
    _begin_with_the_first(trial, group)
    with trial.measured() as figures:
        figures |= share_consumer_performance(trial.cluster.bootstrap, topic, records=records, group=group)
    return figures


def _begin_with_the_first(trial: Trial, group: str) -> None:
    """Let a share group read what is there; it would begin with what comes."""
    setting = AlterableConfig(name="share.auto.offset.reset", value="earliest")
    resource = AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=[setting])
    with socket.create_connection(("127.0.0.1", trial.cluster.nodes[0].port), TIMEOUT_S) as connection:
        (answer,) = send_request(connection, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    if answer.error_code:
        raise ToolFailed(f"{group} keeps where it begins: {answer.error_message}")


@case(
    "consume-committed",
    "600 k × 1,000 B in transactions of 20 ms, read_committed (librdkafka)",
    needs=TRANSACTIONS,
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=22,
)
def consume_committed(trial: Trial) -> Figures:
    return consume(trial, records=600_000, transaction_ms=20)


@case(
    "consume-tail",
    "300 k × 1,000 B, five consumers (librdkafka) of what a producer is writing",
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=16,
)
def consume_tail(trial: Trial) -> Figures:
    """Each reads everything, as it comes. The servers' CPU is that of both sides."""
    records = trial.scaled(300_000)
    with trial.topic() as topic, ThreadPoolExecutor(TAILS) as clients, trial.measured() as figures:
        tails = [
            clients.submit(
                librdkafka,
                "consume",
                bootstrap=trial.cluster.bootstrap,
                topic=topic,
                partitions=1,
                consumers=1,
                records=records,
                settings={},
            )
            for _ in range(TAILS)
        ]
        producer_performance(
            trial.cluster.bootstrap,
            topic,
            records=records,
            record_bytes=RECORD_BYTES,
            settings={"acks": "1", "batch.size": "65536"},
        )
        rates = [tail.result()["records_per_s"] for tail in tails]
        figures["records_per_s"] = sum(rates)
    return figures
