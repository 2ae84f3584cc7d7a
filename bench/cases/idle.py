"""The cost of an idle node with partitions and connections, and the memory of one partition or connection."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.harness import measure
from bench.harness.case import MEMORY_GOALS, Trial, case
from bench.harness.figures import Figures
from bench.harness.node_requests import fetch_api_keys


@contextmanager
def open_connections(trial: Trial, count: int) -> Iterator[list[socket.socket]]:
    """Open connections, and send an ApiVersions request on each of them."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            port = trial.cluster.nodes[0].port
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            fetch_api_keys(connection)
            connections.append(connection)
        yield connections


def measure_idle(trial: Trial, *, settle_s: float = 5.0, watch_s: float = 10.0) -> Figures:
    """Wait until the cluster has settled, then measure its CPU and memory without requests."""
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


@case(
    "idle-1000",
    "no requests, with 1,000 partitions and 1,000 connections",
    warm_rounds=0,
    goals=MEMORY_GOALS,
    seconds=35,
)
def idle_1000(trial: Trial) -> Figures:
    trial.cluster.make_once("partitions", lambda: trial.new_topic(trial.scaled(1_000)))
    with open_connections(trial, trial.scaled(1_000)):
        return measure_idle(trial)


EACH_GOALS = {"each_kb": 1.0}
_SETTLE_S = 2.0


@case("memory-partition", "one partition, from 2,000 additional ones", warm_rounds=0, goals=EACH_GOALS, seconds=12)
def memory_of_a_partition(trial: Trial) -> Figures:
    count = trial.scaled(2_000)
    trial.new_topic(50)  # the first partitions also cause one-time allocations
    with _measured_growth(trial, count) as figures:
        trial.new_topic(count)
    return figures


@case("memory-connection", "one connection, from 2,000 additional ones", warm_rounds=0, goals=EACH_GOALS, seconds=13)
def memory_of_a_connection(trial: Trial) -> Figures:
    count = trial.scaled(2_000)
    with open_connections(trial, 50), ExitStack() as stack, _measured_growth(trial, count) as figures:
        stack.enter_context(open_connections(trial, count))
    return figures


@contextmanager
def _measured_growth(trial: Trial, count: int) -> Iterator[Figures]:
    """Measure the growth of the servers' memory in the body, per item. A JVM may grow by less than it uses."""
    figures: Figures = {}
    time.sleep(_SETTLE_S)
    before = measure.resident_bytes(trial.cluster.pids)
    yield figures
    time.sleep(_SETTLE_S)
    after = measure.resident_bytes(trial.cluster.pids)
    figures["each_kb"] = max(after - before, 0) / count / 1_000
    figures["rss_mb"] = after / measure.MEGABYTE
