"""Producing and consuming over TLS, where neither system can use sendfile."""

from bench.cases.consume import fill_topic
from bench.harness import tls_listener
from bench.harness.case import LOAD_GOALS, Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka
from bench.harness.tools import producer_performance


@case("tls-produce", "300 k × 1,000 B, 64 KiB batches, acks=1", secured=True, goals=LOAD_GOALS, shares=True, seconds=20)
def tls_produce(trial: Trial) -> Figures:
    count = trial.scaled(300_000)
    with trial.topic() as topic, trial.measured() as figures:
        figures |= producer_performance(
            trial.cluster.secured_bootstrap,
            topic,
            records=count,
            record_bytes=1_000,
            settings={"acks": "1", "batch.size": "65536", **tls_listener.java_settings()},
            warm_up=count // 3,
        )
    return figures


@case(
    "tls-consume", "300 k × 1,000 B, one consumer (librdkafka)", secured=True, goals=LOAD_GOALS, shares=True, seconds=9
)
def tls_consume(trial: Trial) -> Figures:
    count = trial.scaled(300_000)
    topic = fill_topic(trial, count)
    with trial.measured() as figures:
        figures |= librdkafka(
            "consume",
            bootstrap=trial.cluster.secured_bootstrap,
            topic=topic,
            partitions=1,
            consumers=1,
            records=count,
            settings=tls_listener.librdkafka_settings(),
        )
    return figures
