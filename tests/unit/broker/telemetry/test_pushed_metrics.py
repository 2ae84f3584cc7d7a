"""Pushed metrics are shown to Prometheus, within limits."""

import pytest

from ottla.broker.metrics.family import render
from ottla.broker.telemetry import pushed_metrics
from ottla.broker.telemetry.otlp import Point
from ottla.broker.telemetry.pushed_metrics import PushedMetrics

NOW_MS = 1_700_000_000_000
ATTRIBUTES = {"client_instance_id": "x", "client_id": 'a"b', "client_software_name": None}


def shown(metrics: PushedMetrics, now_ms: int = NOW_MS) -> list[str]:
    return [line for line in render(metrics.families(now_ms)).splitlines() if line.startswith("client_")]


def test_gauges_are_replaced_and_deltas_are_added() -> None:
    metrics = PushedMetrics(10)
    points = [
        Point("org.apache.Kafka.Rate", (("topic-name", "t"), ("client_id", "stolen"), ("1st", "y")), 2.0, False, False),
        Point("sent", (), 3, True, True),
    ]
    for _ in range(2):
        metrics.store(b"x", ATTRIBUTES, points, 1000, NOW_MS)
    rate, sent = shown(metrics)
    labels = 'client_instance_id="x",client_id="a\\"b",client_software_name="",client_software_version=""'
    assert rate == f'client_org_apache_kafka_rate{{{labels},topic_name="t",_1st="y"}} 2.0'
    assert sent == f"client_sent_total{{{labels}}} 6.0"


def test_silent_clients_are_left_out() -> None:
    metrics = PushedMetrics(10)
    metrics.store(b"x", ATTRIBUTES, [Point("g", (), 1, False, False)], 1000, NOW_MS)
    assert shown(metrics, NOW_MS + 59_000)
    assert not shown(metrics, NOW_MS + 60_000)


def test_clients_and_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_metrics, "MAX_SERIES", 3)
    metrics = PushedMetrics(2)
    for client in range(5):
        points = [Point(f"m{number}", (), client, False, False) for number in range(7)]
        metrics.store(bytes([client]), ATTRIBUTES, points, 1000, NOW_MS)
    assert len(shown(metrics)) == 6
    assert metrics.dropped == 20


def test_clients_that_disagree_on_a_metric_keep_the_page_valid() -> None:
    metrics = PushedMetrics(2)
    metrics.store(b"x", ATTRIBUTES, [Point("m_total", (), 1, True, False)], 1000, NOW_MS)
    metrics.store(b"y", ATTRIBUTES, [Point("m_total", (), 1, False, False)], 1000, NOW_MS)
    assert len(shown(metrics)) == 1


def test_without_room_for_clients_nothing_is_kept() -> None:
    metrics = PushedMetrics(0)
    metrics.store(b"x", ATTRIBUTES, [Point("m", (), 1, False, False)], 1000, NOW_MS)
    assert not metrics.is_open
    assert not shown(metrics)
