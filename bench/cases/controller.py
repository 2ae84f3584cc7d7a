"""The controller against the size of its image: create partitions, fence a broker, write a snapshot, start."""

import time

from bench.harness import measure
from bench.harness.case import Trial, case
from bench.harness.controllers import LoneController
from bench.harness.figures import Figures

SNAPSHOT_MS = 5_000
GOALS = {"fence_ms": 1.0, "active_ms": 1.0, "rss_mb": 1.0}


@case(
    "controller-partitions",
    "by number of partitions: create them, fence the leader of a tenth, write a snapshot, start",
    nodes=0,
    warm_rounds=0,
    goals=GOALS,
    axis="partitions",
    sizes=(10_000, 100_000),
    quick_sizes=(1_000,),
    seconds=42,
)
def controller_partitions(trial: Trial) -> Figures:
    assert trial.x is not None
    controller = LoneController(trial.system, trial.folder / f"lone-{trial.x}", snapshot_ms=SNAPSHOT_MS)
    figures: Figures = {}
    try:
        controller.start()
        controller.register_brokers()
        pids = [controller.node.pid]
        with measure.measured(pids, figures):
            began = time.perf_counter()
            controller.create(trial.x)
            figures["time_ms"] = (time.perf_counter() - began) * 1000
        began, used = time.perf_counter(), measure.cpu_seconds(pids)
        controller.heartbeat(100, want_fence=True)
        figures["fence_ms"] = (time.perf_counter() - began) * 1000
        figures["fence_cpu_s"] = measure.cpu_seconds(pids) - used
        with controller.probing() as times:
            figures["snapshot_ms"] = controller.await_snapshot()
        figures["stall_ms"] = max(times)
        figures["rss_mb"] = measure.resident_bytes(pids) / measure.MEGABYTE
        controller.stop()
        figures["active_ms"] = controller.start() * 1000
    finally:
        controller.stop()
    return figures
