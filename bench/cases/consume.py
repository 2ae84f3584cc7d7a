"""Consuming what is there, from the page cache: librdkafka and Kafka's own consumer; one consumer and ten."""

from bench.case import GROUPS, LOAD_GOALS, Trial, case
from bench.figures import Figures
from bench.load import librdkafka
from bench.tools import consumer_performance, producer_performance

RECORD_BYTES = 1_000


def filled(trial: Trial, records: int, partitions: int = 1) -> str:
    """A topic with records in it, which all rounds of this life read."""

    def fill() -> str:
        topic = trial.new_topic(partitions)
        producer_performance(
            trial.cluster.bootstrap,
            topic,
            records=records,
            record_bytes=RECORD_BYTES,
            settings={"acks": "1", "batch.size": "65536"},
        )
        return topic

    return trial.cluster.once(f"{records} in {partitions}", fill)


def consume(trial: Trial, *, records: int, partitions: int = 1, consumers: int = 1) -> Figures:
    count = trial.scaled(records)
    topic = filled(trial, count, partitions)
    with trial.measured() as figures:
        figures |= librdkafka(
            "consume",
            bootstrap=trial.cluster.bootstrap,
            topic=topic,
            partitions=partitions,
            consumers=consumers,
            records=count,
            settings={},
        )
    return figures


@case("consume-2gb", "2 M × 1,000 B, one consumer (librdkafka)", quick=True, warm_rounds=3, goals=LOAD_GOALS)
def consume_2gb(trial: Trial) -> Figures:
    return consume(trial, records=2_000_000)


@case("consume-10", "1 M × 1,000 B, ten consumers (librdkafka) of ten partitions", goals=LOAD_GOALS)
def consume_10(trial: Trial) -> Figures:
    return consume(trial, records=1_000_000, partitions=10, consumers=10)


@case("consume-java", "1 M × 1,000 B, Kafka's consumer in a group of its own", needs=GROUPS, goals=LOAD_GOALS)
def consume_java(trial: Trial) -> Figures:
    records = trial.scaled(1_000_000)
    topic = filled(trial, records)
    with trial.measured() as figures:
        figures |= consumer_performance(trial.cluster.bootstrap, topic, records=records, settings={})
    return figures
