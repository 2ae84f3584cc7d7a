"""Curves: what things cost against the number of partitions, and of connections. Flat or linear is good."""

import time

from bench import measure
from bench.asking import ask_metadata
from bench.case import Trial, case
from bench.cases.idle import connections, idle
from bench.figures import Figures, percentiles
from bench.tools import producer_performance

PINGS = 500
SETTLE_S, WATCH_S = 2.0, 5.0


@case(
    "growth-partitions",
    "a topic of so many partitions: made, written to, left alone",
    warm_rounds=0,
    axis="partitions",
    sizes=(1, 10, 100, 1_000, 5_000),
    quick_sizes=(1, 10, 100),
)
def growth_partitions(trial: Trial) -> Figures:
    assert trial.x is not None
    began = time.perf_counter()
    with trial.topic(trial.x) as topic:
        created = time.perf_counter() - began
        with trial.measured() as figures:
            figures |= producer_performance(
                trial.cluster.bootstrap,
                topic,
                records=trial.scaled(100_000),
                record_bytes=1_000,
                settings={"acks": "1"},
            )
        return {**figures, **idle(trial, settle_s=SETTLE_S, watch_s=WATCH_S), "time_ms": created * 1000}


@case(
    "growth-connections",
    "so many open connections: opened, left alone, and one of them asks",
    quick=True,
    warm_rounds=0,
    axis="connections",
    sizes=(1, 10, 100, 1_000, 5_000),
    quick_sizes=(10, 1_000),
)
def growth_connections(trial: Trial) -> Figures:
    assert trial.x is not None
    began = time.perf_counter()
    with connections(trial, trial.x) as many:
        opened = time.perf_counter() - began
        figures = idle(trial, settle_s=SETTLE_S, watch_s=WATCH_S)
        used = measure.cpu_seconds(trial.cluster.pids)
        times = []
        for _ in range(PINGS):
            asked = time.perf_counter()
            ask_metadata(many[-1])
            times.append((time.perf_counter() - asked) * 1000)
        figures["server_cpu_s"] = measure.cpu_seconds(trial.cluster.pids) - used
    return {**figures, **percentiles(times), "time_ms": opened * 1000}
