"""End-to-end latency at steady rates: the time from when a record is due until a consumer has it."""

from bench.harness.case import GROUPS, LOAD_GOALS, Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka
from bench.harness.tools import end_to_end_latency

RECORD_BYTES = 100
GOALS = {name: LOAD_GOALS[name] for name in ("server_cpu_s", "p99_ms")}


def run_at_rate(trial: Trial, *, records_per_s: int, seconds: float, consumers: int = 1) -> Figures:
    with trial.topic() as topic, trial.measured() as figures:
        figures |= librdkafka(
            "end-to-end",
            bootstrap=trial.cluster.bootstrap,
            topic=topic,
            records_per_s=records_per_s,
            seconds=max(1.0, seconds * trial.scale),
            record_bytes=RECORD_BYTES,
            consumers=consumers,
            producer_settings={"acks": "1"},
        )
    return figures


@case("latency-1", "end to end at 1 record/s", warm_rounds=1, goals={"p50_ms": 0.7}, shares=True, seconds=30)
def latency_1(trial: Trial) -> Figures:
    return run_at_rate(trial, records_per_s=1, seconds=6)


@case("latency-1000", "end to end at 1,000 records/s", quick=True, goals=GOALS, seconds=29)
def latency_1000(trial: Trial) -> Figures:
    return run_at_rate(trial, records_per_s=1_000, seconds=4)


@case("latency-20000", "end to end at 20,000 records/s", goals=GOALS, shares=True, seconds=15)
def latency_20000(trial: Trial) -> Figures:
    return run_at_rate(trial, records_per_s=20_000, seconds=4)


@case(
    "latency-tail10",
    "end to end at 1,000 records/s, one partition, ten consumers",
    goals=GOALS,
    shares=True,
    seconds=18,
)
def latency_tail_10(trial: Trial) -> Figures:
    return run_at_rate(trial, records_per_s=1_000, seconds=4, consumers=10)


@case(
    "latency-java",
    "5,000 × 100 B, each read before the next is sent (Kafka's EndToEndLatency)",
    needs=GROUPS,
    goals=GOALS,
    shares=True,
    seconds=17,
)
def latency_java(trial: Trial) -> Figures:
    with trial.topic() as topic, trial.measured() as figures:
        figures |= end_to_end_latency(
            trial.cluster.bootstrap, topic, records=trial.scaled(5_000), record_bytes=RECORD_BYTES, acks="1"
        )
    return figures
