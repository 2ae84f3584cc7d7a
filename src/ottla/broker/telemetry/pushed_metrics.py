"""The last of what clients pushed, as Prometheus reads it; and what they were told.

Each client has so many series and no more, there are so many clients and no more, and who has not pushed for three
intervals is left out. Sums that come as differences are added up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.broker.metrics.family import Family, Kind, counter, gauge
from ottla.broker.telemetry.otlp import Attributes, Point

MOST_SERIES: Final = 2_000
"""Of one client."""
_MOST_ATTRIBUTES: Final = 16
_LONGEST: Final = 200
"""Characters of a name or a label."""
_KEPT_MS: Final = 60_000
_unusual = re.compile(r"[^a-z0-9_]")
_LABELS: Final = ("client_instance_id", "client_id", "client_software_name", "client_software_version")


class _Series(NamedTuple):
    name: str
    kind: Kind
    attributes: Attributes


class _Client:
    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.until_ms = 0
        self.values: dict[_Series, float] = {}


class PushedMetrics:
    """What is kept of clients' metrics."""

    def __init__(self, most_clients: int) -> None:
        self._most_clients = most_clients
        self._clients: dict[bytes, _Client] = {}
        """The one that was silent for longest comes first."""
        self.pushes = 0
        self.refused = 0
        self.dropped = 0
        """Series that were one too many."""

    @property
    def is_open(self) -> bool:
        """Whether anything is kept at all, so that clients are told of it."""
        return self._most_clients > 0

    def take(
        self, instance_id: bytes, told: Mapping[str, str | None], points: Iterable[Point], interval_ms: int, now_ms: int
    ) -> None:
        """Keep a push."""
        self.pushes += 1
        if not self.is_open:
            return
        client = self._clients.pop(instance_id, None)
        if client is None or client.until_ms <= now_ms:
            client = _Client({name: (told.get(name) or "")[:_LONGEST] for name in _LABELS})
        self._clients[instance_id] = client
        client.until_ms = now_ms + max(_KEPT_MS, 3 * interval_ms)
        while len(self._clients) > self._most_clients:
            del self._clients[next(iter(self._clients))]
        values = client.values
        for point in points:
            series = _Series(_name(point), Kind.COUNTER if point.is_counter else Kind.GAUGE, point.attributes)
            if series not in values and len(values) >= MOST_SERIES:
                self.dropped += 1
                continue
            before = values.get(series, 0.0) if point.is_delta else 0.0
            values[series] = before + point.value

    def families(self, now_ms: int) -> Iterator[Family]:
        """All that is fresh. Where clients disagree on what a metric is, the first one counts."""
        told = counter("ottla_client_telemetry_pushes_total", "Pushes of metrics by clients that were taken.")
        told.add(self.pushes)
        yield told
        refused = counter("ottla_client_telemetry_refused_total", "Pushes of metrics by clients that were refused.")
        refused.add(self.refused)
        yield refused
        dropped = counter("ottla_client_telemetry_dropped_total", "Numbers of clients' metrics that were not kept.")
        dropped.add(self.dropped)
        yield dropped
        for old in [each for each, client in self._clients.items() if client.until_ms <= now_ms]:
            del self._clients[old]
        clients = gauge("ottla_client_telemetry_clients", "Clients whose metrics are shown.")
        clients.add(len(self._clients))
        yield clients
        found: dict[str, Family] = {}
        for client in self._clients.values():
            for series, value in client.values.items():
                family = found.setdefault(series.name, Family(series.name, series.kind, "A metric that clients push."))
                if family.kind is series.kind:
                    family.add(value, {**client.labels, **_labels(series.attributes, client.labels)})
        yield from found.values()


def _name(point: Point) -> str:
    name = f"client_{_unusual.sub('_', point.name.lower())}"[:_LONGEST]
    return f"{name}_total" if point.is_counter and not name.endswith("_total") else name


def _labels(attributes: Attributes, taken: Mapping[str, str]) -> dict[str, str]:
    """Attributes as labels: with names that Prometheus takes, and none of those that the broker sets."""
    found: dict[str, str] = {}
    for key, value in attributes[:_MOST_ATTRIBUTES]:
        name = _unusual.sub("_", key.lower())[:_LONGEST] or "_"
        if name[0].isdigit():
            name = f"_{name}"
        if name not in taken:
            found[name] = value[:_LONGEST]
    return found
