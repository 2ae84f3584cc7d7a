"""What a node costs that nobody asks anything: with partitions, with connections."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import measure
from bench.asking import ask_versions
from bench.case import MEMORY_GOALS, Trial, case
from bench.figures import Figures


@contextmanager
def connections(trial: Trial, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that have said what a client says first."""
    with ExitStack() as stack:
        many = []
        for _ in range(count):
            port = trial.cluster.nodes[0].port
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            ask_versions(connection)
            many.append(connection)
        yield many


def idle(trial: Trial, *, settle_s: float = 5.0, watch_s: float = 10.0) -> Figures:
    """CPU and memory of a cluster that is left alone, after it has settled."""
    pace = min(1.0, trial.scale * 5)
    time.sleep(settle_s * pace)
    pids, watch_s = trial.cluster.pids, watch_s * pace
    used = measure.cpu_seconds(pids)
    time.sleep(watch_s)
    used = measure.cpu_seconds(pids) - used
    return {
        "idle_percent": used / watch_s * 100,
        "rss_mb": measure.resident_bytes(pids) / measure.MEGABYTE,
        "pss_mb": measure.proportional_bytes(pids) / measure.MEGABYTE,
    }


@case("idle-1000", "left alone, with 1,000 partitions and 1,000 connections", warm_rounds=1, goals=MEMORY_GOALS)
def idle_1000(trial: Trial) -> Figures:
    trial.cluster.once("partitions", lambda: trial.new_topic(trial.scaled(1_000)))
    with connections(trial, trial.scaled(1_000)):
        return idle(trial)
