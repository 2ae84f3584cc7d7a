"""Producing: sizes of records and batches, acks, compression, partitions, producers.

The client is Kafka's Java producer unless the title names another one.
"""

from bench.harness.case import LOAD_GOALS, TRANSACTIONS, Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka
from bench.harness.tools import producer_performance

BATCHES_64K = {"batch.size": "65536"}
UNDER_LOAD = {**LOAD_GOALS, "rss_peak_mb": 1 / 3}
MANY_ROUNDS = 6
"""A round takes a second or two, and one pause of the producer can determine its p99."""


def produce(
    trial: Trial,
    *,
    records: int,
    record_bytes: int = 1_000,
    partitions: int = 1,
    acks: str = "1",
    settings: dict[str, str] | None = None,
    transaction_ms: int | None = None,
) -> Figures:
    """Produce into a new topic at full speed with one Java producer.

    The producer is a new process, and the first third of its records warms it up: server CPU includes these records,
    throughput and latencies do not.
    """
    count = trial.scaled(records)
    with trial.topic(partitions) as topic, trial.measured() as figures:
        figures |= producer_performance(
            trial.cluster.bootstrap,
            topic,
            records=count,
            record_bytes=record_bytes,
            settings={"acks": acks, **(settings or {})},
            transaction_ms=transaction_ms,
            warm_up=count // 3,
        )
    return figures


@case("produce-1k", "1 M × 1,000 B, 64 KiB batches, acks=1", quick=True, lives=2, goals=UNDER_LOAD, seconds=33)
def produce_1k(trial: Trial) -> Figures:
    return produce(trial, records=1_000_000, settings=BATCHES_64K)


@case("produce-100b", "2 M × 100 B, default batches, acks=1", quick=True, lives=2, goals=UNDER_LOAD, seconds=28)
def produce_100b(trial: Trial) -> Figures:
    return produce(trial, records=2_000_000, record_bytes=100)


@case(
    "produce-single",
    "60 k × 100 B, one record a batch, acks=1",
    quick=True,
    lives=2,
    goals=UNDER_LOAD,
    seconds=34,
)
def produce_single(trial: Trial) -> Figures:
    return produce(trial, records=60_000, record_bytes=100, settings={"batch.size": "0", "linger.ms": "0"})


@case("produce-acks0", "300 k × 1,000 B, acks=0", goals=LOAD_GOALS, warm_rounds=MANY_ROUNDS, shares=True, seconds=12)
def produce_acks0(trial: Trial) -> Figures:
    return produce(trial, records=300_000, acks="0", settings=BATCHES_64K)


@case("produce-acksall", "300 k × 1,000 B, acks=all", goals=LOAD_GOALS, warm_rounds=MANY_ROUNDS, shares=True, seconds=9)
def produce_acksall(trial: Trial) -> Figures:
    return produce(trial, records=300_000, acks="all", settings={**BATCHES_64K, "enable.idempotence": "false"})


@case(
    "produce-idempotent",
    "300 k × 1,000 B, idempotent, acks=all",
    quick=True,
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=14,
)
def produce_idempotent(trial: Trial) -> Figures:
    return produce(trial, records=300_000, acks="all", settings={**BATCHES_64K, "enable.idempotence": "true"})


@case("produce-lz4", "300 k × 1,000 B, lz4", goals=LOAD_GOALS, warm_rounds=MANY_ROUNDS, shares=True, seconds=9)
def produce_lz4(trial: Trial) -> Figures:
    return produce(trial, records=300_000, settings={**BATCHES_64K, "compression.type": "lz4"})


@case("produce-zstd", "300 k × 1,000 B, zstd", goals=LOAD_GOALS, warm_rounds=MANY_ROUNDS, shares=True, seconds=9)
def produce_zstd(trial: Trial) -> Figures:
    return produce(trial, records=300_000, settings={**BATCHES_64K, "compression.type": "zstd"})


@case(
    "produce-10p",
    "300 k × 1,000 B over 10 partitions",
    goals=LOAD_GOALS,
    warm_rounds=MANY_ROUNDS,
    shares=True,
    seconds=8,
)
def produce_10_partitions(trial: Trial) -> Figures:
    return produce(trial, records=300_000, partitions=10, settings=BATCHES_64K)


@case(
    "produce-100p",
    "300 k × 1,000 B over 100 partitions",
    goals=LOAD_GOALS,
    warm_rounds=MANY_ROUNDS,
    shares=True,
    seconds=9,
)
def produce_100_partitions(trial: Trial) -> Figures:
    return produce(trial, records=300_000, partitions=100, settings=BATCHES_64K)


@case("produce-1000p", "60 k × 1,000 B over 1,000 partitions", warm_rounds=1, goals=LOAD_GOALS, shares=True, seconds=22)
def produce_1000_partitions(trial: Trial) -> Figures:
    return produce(trial, records=60_000, partitions=1_000, settings=BATCHES_64K)


@case(
    "produce-20",
    "200 k × 1,000 B by 20 producers (librdkafka) over 10 partitions",
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=4,
)
def produce_20(trial: Trial) -> Figures:
    with trial.topic(10) as topic, trial.measured() as figures:
        figures |= librdkafka(
            "produce",
            bootstrap=trial.cluster.bootstrap,
            topic=topic,
            producers=20,
            records=trial.scaled(200_000),
            record_bytes=1_000,
            settings={"acks": "1"},
        )
    return figures


@case(
    "produce-transactions",
    "300 k × 1,000 B in transactions of 100 ms",
    needs=TRANSACTIONS,
    warm_rounds=MANY_ROUNDS,
    goals=LOAD_GOALS,
    shares=True,
    seconds=9,
)
def produce_transactions(trial: Trial) -> Figures:
    return produce(trial, records=300_000, acks="all", settings=BATCHES_64K, transaction_ms=100)
