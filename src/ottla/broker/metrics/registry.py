"""The registry of a node's metrics.

Components keep plain numbers, or provide functions that read them. Nothing runs between two readings.
"""

import logging
from collections.abc import Callable, Iterable

from ottla.broker.metrics.family import NO_LABELS, Family, Kind, Labels, render

logger = logging.getLogger(__name__)

Read = Callable[[], float | None]
Source = Callable[[], Iterable[Family]]


class Counter:
    """A number that never falls: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def read(self) -> int:
        return self.value


class Registry:
    """All metrics of a node."""

    def __init__(self) -> None:
        self._registered: dict[str, tuple[Kind, str]] = {}
        self._reads: list[tuple[str, Labels, Read]] = []
        self._sources: list[Source] = []
        self._failed: set[object] = set()

    def counter(self, name: str, help_: str, labels: Labels = NO_LABELS) -> Counter:
        """Register and return a new counter."""
        counter = Counter()
        self.read_counter(name, help_, counter.read, labels)
        return counter

    def read_counter(self, name: str, help_: str, read: Read, labels: Labels = NO_LABELS) -> None:
        """Register a function that reads a counter."""
        assert name.endswith("_total"), f"the name of the counter {name} must end in _total"
        self._add(name, Kind.COUNTER, help_, read, labels)

    def gauge(self, name: str, help_: str, read: Read, labels: Labels = NO_LABELS) -> None:
        """Register a function that reads a gauge, or returns None to leave it out."""
        self._add(name, Kind.GAUGE, help_, read, labels)

    def collect(self, source: Source) -> None:
        """Register a function that builds metric families."""
        self._sources.append(source)

    def families(self) -> list[Family]:
        """Read all metrics. A metric that cannot be read is left out and logged once."""
        families: dict[str, Family] = {}
        for name, labels, read in self._reads:
            try:
                value = read()
            except Exception as error:  # noqa: BLE001 (one failing metric must not hide the others)
                self._log_failure(read, name, error)
                continue
            if value is not None:
                kind, help_ = self._registered[name]
                families.setdefault(name, Family(name, kind, help_)).add(value, labels)
        for source in self._sources:
            try:
                collected = list(source())
            except Exception as error:  # noqa: BLE001 (as above)
                self._log_failure(source, getattr(source, "__qualname__", repr(source)), error)
                continue
            for family in collected:
                assert family.name not in families, f"two sources provide the metric {family.name}"
                families[family.name] = family
        return list(families.values())

    def render(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return render(self.families())

    def _add(self, name: str, kind: Kind, help_: str, read: Read, labels: Labels) -> None:
        registered = self._registered.setdefault(name, (kind, help_))
        assert registered == (kind, help_), f"{name} is registered as a {registered[0]} with another help text"
        self._reads.append((name, labels, read))

    def _log_failure(self, reader: object, name: str, error: Exception) -> None:
        if reader not in self._failed:
            self._failed.add(reader)
            logger.error("the metric %s cannot be read and is left out", name, exc_info=error)
