"""The registry and its text, read back by a strict parser."""

import logging
import math
from collections.abc import Iterator

import pytest

from ottla.broker.metrics.family import Family, Kind, counter, gauge, histogram, render, summary
from ottla.broker.metrics.process_metrics import process_families
from ottla.broker.metrics.registry import Registry
from ottla.storage.state_machine.histogram import new_counts, record
from tests.support.exposition import Exposition


def test_counters_and_gauges_are_rendered() -> None:
    registry = Registry()
    seen = registry.counter("seen_total", "Things seen.", {"kind": "a"})
    registry.read_counter("seen_total", "Things seen.", lambda: 7, {"kind": "b"})
    registry.gauge("height", "How high.", lambda: 1.5)
    registry.gauge("unknown", "Without a value now.", lambda: None)
    seen.value += 2
    metrics = Exposition(registry.render())
    assert metrics['seen_total{kind="a"}'] == 2
    assert metrics['seen_total{kind="b"}'] == 7
    assert metrics["height"] == 1.5
    assert set(metrics.metrics) == {"seen_total", "height"}


def test_families_are_sorted_by_name() -> None:
    registry = Registry()
    for name in ("b", "c", "a"):
        registry.gauge(name, "A letter.", lambda: 1)
    assert list(Exposition(registry.render()).metrics) == ["a", "b", "c"]


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "\\n", "日本", "}", ",", 'x="y",'])
def test_label_values_survive_rendering(text: str) -> None:
    family = gauge("metrics", "With \\ and \n in it.")
    family.add(1, {"label": text})
    ((_, labels),) = Exposition(render([family])).metrics["metrics"].values
    assert dict(labels) == {"label": text}


@pytest.mark.parametrize("value", [0, 1, -1, 1 << 62, 0.1, 1e-9, 1e300, math.inf, -math.inf])
def test_numbers_survive_rendering(value: float) -> None:
    family = gauge("number", "A number.")
    family.add(value)
    assert Exposition(render([family]))["number"] == value


def test_histograms_and_summaries_have_all_their_parts() -> None:
    counts = new_counts()
    for value in (1, 3, 1000, 5000):
        record(counts, value)
    buckets, quantiles = histogram("sizes", "Sizes."), summary("times", "Times.")
    buckets.add_histogram(counts, 2, 4, 1, {"of": "x"})
    quantiles.add_summary(counts, new_counts(), 1000, {"of": "x"})
    metrics = Exposition(render([buckets, quantiles]))
    assert metrics['sizes_bucket{of="x",le="4.0"}'] == 2
    assert metrics['sizes_bucket{of="x",le="+Inf"}'] == metrics['sizes_count{of="x"}'] == 4
    assert metrics['sizes_sum{of="x"}'] == 6004
    assert metrics['times_sum{of="x"}'] == 6.004
    assert math.isnan(metrics['times{of="x",quantile="0.99"}'])


def test_one_failing_metric_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> float:
        raise ValueError("no idea")

    def broken_source() -> Iterator[Family]:
        yield gauge("half", "Half of it.")
        raise ValueError("no idea")

    registry = Registry()
    registry.gauge("broken", "It is.", broken)
    registry.collect(broken_source)
    registry.gauge("sound", "It is.", lambda: 1)
    with caplog.at_level(logging.ERROR):
        assert set(Exposition(registry.render()).metrics) == {"sound"}
        registry.render()
    assert len(caplog.records) == 2, "each failure is logged once"


def test_a_metric_name_can_be_registered_once() -> None:
    registry = Registry()
    registry.gauge("height", "How high.", lambda: 1)
    with pytest.raises(AssertionError):
        registry.gauge("height", "How tall.", lambda: 1)
    with pytest.raises(AssertionError):
        counter("height", "Counters end in _total.")
    with pytest.raises(AssertionError):
        Family("bad-name", Kind.GAUGE, "No dashes.")


def test_the_process_has_metrics() -> None:
    metrics = Exposition(render(process_families()))
    assert metrics["process_resident_memory_bytes"] > 1_000_000
    assert metrics["process_cpu_seconds_total"] > 0
    assert 3 <= metrics["process_open_fds"] <= metrics["process_max_fds"]
