"""Starting: the time from launching the process to the first Metadata response, and the memory of an idle node."""

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
    """Start a formatted node, let it settle, and stop it.

    With `partitions`, the node has run before: it was stopped, or killed just after records were written.
    """
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
    """Write records to all partitions, each to a random one."""
    librdkafka(
        "produce",
        bootstrap=cluster.bootstrap,
        topic="wide",
        producers=1,
        records=records,
        record_bytes=100,
        settings={"acks": "1", "sticky.partitioning.linger.ms": "0"},
    )


@case("start-empty", "empty node; memory while idle", quick=True, nodes=0, goals=GOALS, seconds=27)
def start_empty(trial: Trial) -> Figures:
    return start(trial)


@case(
    "start-1000p",
    "1,000 partitions after a clean shutdown; memory while idle",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
    seconds=35,
)
def start_1000_partitions(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000))


@case(
    "start-killed",
    "1,000 partitions after a kill during writes; memory while idle",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
    seconds=42,
)
def start_killed(trial: Trial) -> Figures:
    return start(trial, trial.scaled(1_000), killed=True)
