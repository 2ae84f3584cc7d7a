"""Consuming stored records from the page cache and records that are being written, with librdkafka and Java."""

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
"""A round takes a second, which is too short for a reliable figure; writing the records takes longer, but once."""


def fill_topic(trial: Trial, records: int, partitions: int = 1, *, transaction_ms: int | None = None) -> str:
    """Create a topic with records, which all rounds of this life read."""

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
    topic = fill_topic(trial, count, partitions, transaction_ms=transaction_ms)
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
    "600 k × 1,000 B, ten consumers (librdkafka), ten partitions",
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=26,
)
def consume_10(trial: Trial) -> Figures:
    return consume(trial, records=600_000, partitions=10, consumers=10)


@case(
    "consume-java",
    "300 k × 1,000 B, Kafka's Java consumer in a group",
    needs=GROUPS,
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=20,
)
def consume_java(trial: Trial) -> Figures:
    records = trial.scaled(300_000)
    topic = fill_topic(trial, records)
    with trial.measured() as figures:
        figures |= consumer_performance(trial.cluster.bootstrap, topic, records=records, settings={})
    return figures


@case(
    "consume-share",
    "100 k × 1,000 B, Kafka's Java share consumer, each record acknowledged",
    needs=SHARE_GROUPS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=24,
)
def consume_share(trial: Trial) -> Figures:
    records = trial.scaled(100_000)
    topic, group = fill_topic(trial, records), f"share-{time.monotonic_ns()}"
    _read_from_the_beginning(trial, group)
    with trial.measured() as figures:
        figures |= share_consumer_performance(trial.cluster.bootstrap, topic, records=records, group=group)
    return figures


def _read_from_the_beginning(trial: Trial, group: str) -> None:
    """Set a share group to start at the earliest offset; the default is the latest."""
    setting = AlterableConfig(name="share.auto.offset.reset", value="earliest")
    resource = AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=[setting])
    with socket.create_connection(("127.0.0.1", trial.cluster.nodes[0].port), TIMEOUT_S) as connection:
        (answer,) = send_request(connection, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    if answer.error_code:
        raise ToolFailed(f"cannot set share.auto.offset.reset of {group}: {answer.error_message}")


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
    "300 k × 1,000 B while a producer writes them, five consumers (librdkafka)",
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=16,
)
def consume_tail(trial: Trial) -> Figures:
    """Each consumer reads all records as they arrive. The server CPU includes the produce requests."""
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
