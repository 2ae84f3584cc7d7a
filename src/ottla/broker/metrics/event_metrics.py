"""Metrics of the events of coordinators and of the controller, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import Any, Final

from ottla.broker.metrics.family import Family, counter, gauge, summary
from ottla.broker.metrics.registry import Registry
from ottla.coordinators.runtime.shards import Shards
from ottla.storage.state_machine.histogram import since
from ottla.storage.state_machine.times import SPANS, EventTimes

_NS_PER_MS: Final = 1e6
_CONTROLLER: Final = "kafka_controller_controllereventmanager_"
_CONTROLLER_SPANS: Final = {
    "eventqueuetimems": "event_queue_time_ms",
    "eventqueueprocessingtimems": "event_processing_time_ms",
}


def watch_coordinators(registry: Registry, kinds: Mapping[str, Shards[Any]]) -> Callable[[], None]:
    """Register the metrics of a broker's coordinators; return a function to call once a minute."""
    for kind, shards in kinds.items():
        registry.collect(lambda kind=kind, shards=shards: _coordinators(kind, shards))  # type: ignore[misc]

    def remember() -> None:
        now_ns = perf_counter_ns()
        for shards in kinds.values():
            shards.times.remember(now_ns)

    remember()
    return remember


def _coordinators(kind: str, shards: Shards[Any]) -> Iterator[Family]:
    prefix, times = f"kafka_server_{kind}_coordinator_metrics_", shards.times
    partitions = gauge(f"{prefix}num_partitions", "Partitions that this broker coordinates, by state.")
    states = [shard.phase for shard in shards]
    for phase in ("loading", "active", "failed"):
        partitions.add(states.count(phase), {"state": phase})
    queue = gauge(f"{prefix}event_queue_size", "Events in the queue.")
    queue.add(sum(shard.machine.queue_size for shard in shards))
    idle = gauge(f"{prefix}thread_idle_ratio_avg", "Share of the last minutes in which no event was processed.")
    idle.add(times.idle_ratio(perf_counter_ns()))
    yield from (partitions, queue, idle)
    for name, help_ in SPANS.items():
        yield _summary(prefix + name, help_, times, name)


def controller_events(times: EventTimes) -> Iterator[Family]:
    """Yield the metrics of this node's controller events."""
    for name, span in _CONTROLLER_SPANS.items():
        yield _summary(_CONTROLLER + name, SPANS[span], times, span)
    idle = gauge(f"{_CONTROLLER}avgidleratio", "Share of the last minutes in which no event was processed.")
    idle.add(times.idle_ratio(perf_counter_ns()))
    started = counter(f"{_CONTROLLER}eventqueueoperationsstartedcount_total", "Events that were started.")
    started.add(times.started)
    late = counter(f"{_CONTROLLER}eventqueueoperationstimedoutcount_total", "Events that expired in the queue.")
    late.add(times.timed_out)
    yield from (idle, started, late)


def _summary(name: str, help_: str, times: EventTimes, span: str) -> Family:
    family, counts = summary(name, help_), times.spans()[span]
    family.add_summary(counts, since(counts, times.recent(span)), _NS_PER_MS)
    return family
