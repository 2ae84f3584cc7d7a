"""Starting: from the launch of the process to the first Metadata answer; and the memory of a node at rest."""

import signal
import time

from confluent_kafka import Producer

from bench import measure
from bench.case import MEMORY_GOALS, START_GOALS, Trial, case
from bench.figures import Figures
from bench.systems import Cluster, ServerFailed

SETTLE_S = 5.0
GOALS = {**START_GOALS, **MEMORY_GOALS}


def start(trial: Trial, partitions: int = 0, *, end: signal.Signals = signal.SIGTERM) -> Figures:
    """Start a formatted node, with some partitions that are written to if asked for, let it settle, and end it."""
    cluster = Cluster(trial.system, trial.folder / f"started-{time.monotonic_ns()}")
    try:
        if partitions:
            cluster.start()
            cluster.create_topics(["wide"], partitions)
            if end == signal.SIGKILL:
                _fill(cluster, partitions, trial.scaled(200_000))
            cluster.stop(end)
        seconds = cluster.start()
        figures = {"time_ms": seconds * 1000, "server_cpu_s": measure.cpu_seconds(cluster.pids)}
        time.sleep(SETTLE_S * min(1.0, trial.scale * 5))
        figures["rss_mb"] = measure.resident_bytes(cluster.pids) / measure.MEGABYTE
        figures["pss_mb"] = measure.proportional_bytes(cluster.pids) / measure.MEGABYTE
        figures["disk_mb"] = measure.disk_bytes(cluster.folder) / measure.MEGABYTE
    finally:
        cluster.stop()
    return figures


def _fill(cluster: Cluster, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": 1, "queue.buffering.max.messages": records})
    for number in range(records):
        producer.produce("wide", bytes(100), partition=number % partitions)
    if left := producer.flush(60):
        raise ServerFailed(f"{cluster.system.title()} did not acknowledge {left} records")


@case("start-empty", "start of an empty node; memory at rest", quick=True, nodes=0, goals=GOALS)
def start_empty(trial: Trial) -> Figures:
    return start(trial)


@case(
    "start-1000p",
    "start with 1,000 partitions after an orderly stop; memory at rest",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
)
def start_1000_partitions(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000))


@case(
    "start-killed",
    "start with 1,000 partitions after the process was killed, just written to; memory at rest",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
)
def start_killed(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000), end=signal.SIGKILL)
