"""Starting: from the launch of the process to the first Metadata answer; and the memory of a node at rest."""

import signal
import time

from bench.harness import measure
from bench.harness.case import MEMORY_GOALS, START_GOALS, Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka
from bench.harness.systems import Cluster

SETTLE_S = 5.0
GOALS = {**START_GOALS, **MEMORY_GOALS}


def start(trial: Trial, partitions: int = 0, *, killed: bool = False) -> Figures:
    """Start a formatted node, let it settle, and end it. If asked for it has partitions of an earlier life, which ended
    in order, or was killed when they had just been written to."""
    cluster = Cluster(trial.system, trial.folder / f"started-{time.monotonic_ns()}")
    try:
        if partitions:
            cluster.start()
            cluster.create_topics(["wide"], partitions)
            if killed:
                _fill(cluster, trial.scaled(60_000))
            cluster.stop(signal.SIGKILL if killed else signal.SIGTERM)
        seconds = cluster.start()
        figures = {"time_ms": seconds * 1000, "server_cpu_s": measure.cpu_seconds(cluster.pids)}
        time.sleep(SETTLE_S * min(1.0, trial.scale * 5))
        figures["rss_mb"] = measure.resident_bytes(cluster.pids) / measure.MEGABYTE
        figures["pss_mb"] = measure.proportional_bytes(cluster.pids) / measure.MEGABYTE
        figures["disk_mb"] = measure.disk_bytes(cluster.folder) / measure.MEGABYTE
    finally:
        cluster.stop()
    return figures


def _fill(cluster: Cluster, records: int) -> None:
    """Records in all partitions: each goes to any of them."""
    librdkafka(
        "produce",
        bootstrap=cluster.bootstrap,
        topic="wide",
        producers=1,
        records=records,
        record_bytes=100,
        settings={"acks": "1", "sticky.partitioning.linger.ms": "0"},
    )


@case("start-empty", "start of an empty node; memory at rest", quick=True, nodes=0, goals=GOALS, seconds=27)
def start_empty(trial: Trial) -> Figures:
    return start(trial)


@case(
    "start-1000p",
    "start with 1,000 partitions after an orderly stop; memory at rest",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
    seconds=35,
)
def start_1000_partitions(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000))


@case(
    "start-killed",
    "start with 1,000 partitions after the process was killed, just written to; memory at rest",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
    seconds=42,
)
def start_killed(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000), killed=True)
