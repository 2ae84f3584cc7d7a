"""The last metrics that clients pushed, for Prometheus.

The number of clients and of series per client is limited. A client that has not pushed for three intervals is left out.
Deltas are added up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.broker.metrics.family import Family, Kind, counter, gauge
from ottla.broker.telemetry.otlp import Attributes, Point

MAX_SERIES: Final = 2_000
"""The most series of one client."""
_MAX_ATTRIBUTES: Final = 16
_MAX_LENGTH: Final = 200
"""The most characters of a name or a label."""
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
    """The metrics that clients pushed, within limits."""

    def __init__(self, max_clients: int) -> None:
        self._max_clients = max_clients
        self._clients: dict[bytes, _Client] = {}
        """By instance id, least recently active first."""
        self.pushes = 0
        self.refused = 0
        self.dropped = 0
        """Values that were dropped because their client had too many series."""

    @property
    def is_open(self) -> bool:
        """Whether metrics are kept, so that the broker advertises the APIs to clients."""
        return self._max_clients > 0

    def store(
        self,
        instance_id: bytes,
        attributes: Mapping[str, str | None],
        points: Iterable[Point],
        interval_ms: int,
        now_ms: int,
    ) -> None:
        """Store the points of a push."""
        self.pushes += 1
        if not self.is_open:
            return
        client = self._clients.pop(instance_id, None)
        if client is None or client.until_ms <= now_ms:
            client = _Client({name: (attributes.get(name) or "")[:_MAX_LENGTH] for name in _LABELS})
        self._clients[instance_id] = client
        client.until_ms = now_ms + max(_KEPT_MS, 3 * interval_ms)
        while len(self._clients) > self._max_clients:
            del self._clients[next(iter(self._clients))]
        values = client.values
        for point in points:
            series = _Series(_name(point), Kind.COUNTER if point.is_counter else Kind.GAUGE, point.attributes)
            if series not in values and len(values) >= MAX_SERIES:
                self.dropped += 1
                continue
            before = values.get(series, 0.0) if point.is_delta else 0.0
            values[series] = before + point.value

    def families(self, now_ms: int) -> Iterator[Family]:
        """Yield all current metrics. If clients disagree on the kind of a metric, the first one counts."""
        pushes = counter("ottla_client_telemetry_pushes_total", "Pushes of client metrics that were accepted.")
        pushes.add(self.pushes)
        yield pushes
        refused = counter("ottla_client_telemetry_refused_total", "Pushes of client metrics that were rejected.")
        refused.add(self.refused)
        yield refused
        dropped = counter(
            "ottla_client_telemetry_dropped_total",
            "Values of client metrics that were dropped because their client had too many series.",
        )
        dropped.add(self.dropped)
        yield dropped
        for instance_id in [key for key, client in self._clients.items() if client.until_ms <= now_ms]:
            del self._clients[instance_id]
        clients = gauge("ottla_client_telemetry_clients", "Clients whose pushed metrics are shown.")
        clients.add(len(self._clients))
        yield clients
        families: dict[str, Family] = {}
        for client in self._clients.values():
            for series, value in client.values.items():
                family = families.setdefault(
                    series.name, Family(series.name, series.kind, "A metric that clients push (KIP-714).")
                )
                if family.kind is series.kind:
                    family.add(value, {**client.labels, **_labels(series.attributes, client.labels)})
        yield from families.values()


def _name(point: Point) -> str:
    name = f"client_{_unusual.sub('_', point.name.lower())}"[:_MAX_LENGTH]
    return f"{name}_total" if point.is_counter and not name.endswith("_total") else name


def _labels(attributes: Attributes, taken: Mapping[str, str]) -> dict[str, str]:
    """Return attributes as labels with valid names, without those that the broker sets."""
    labels: dict[str, str] = {}
    for key, value in attributes[:_MAX_ATTRIBUTES]:
        name = _unusual.sub("_", key.lower())[:_MAX_LENGTH] or "_"
        if name[0].isdigit():
            name = f"_{name}"
        if name not in taken:
            labels[name] = value[:_MAX_LENGTH]
    return labels
