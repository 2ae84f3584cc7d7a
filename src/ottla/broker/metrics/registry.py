"""What a node has to tell, gathered when somebody asks.

Those who count keep plain numbers; those who can be asked are asked by a function. Nothing runs between two readings.
"""

import logging
from collections.abc import Callable, Iterable

from ottla.broker.metrics.family import NO_LABELS, Family, Kind, Labels, render

logger = logging.getLogger(__name__)

Read = Callable[[], float | None]
Source = Callable[[], Iterable[Family]]


class Counter:
    """A number that only grows: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def read(self) -> int:
        return self.value


class Registry:
    """All metrics of a node."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Kind, str]] = {}
        self._reads: list[tuple[str, Labels, Read]] = []
        self._sources: list[Source] = []
        self._broken: set[object] = set()

    def counter(self, name: str, help_: str, labels: Labels = NO_LABELS) -> Counter:
        """A counter to add to."""
        made = Counter()
        self.read_counter(name, help_, made.read, labels)
        return made

    def read_counter(self, name: str, help_: str, read: Read, labels: Labels = NO_LABELS) -> None:
        """A counter that somebody else keeps."""
        assert name.endswith("_total"), f"{name} counts, so that its name ends in _total"
        self._add(name, Kind.COUNTER, help_, read, labels)

    def gauge(self, name: str, help_: str, read: Read, labels: Labels = NO_LABELS) -> None:
        """A number that rises and falls; None leaves it out."""
        self._add(name, Kind.GAUGE, help_, read, labels)

    def collect(self, source: Source) -> None:
        """Families that are put together when they are asked for."""
        self._sources.append(source)

    def families(self) -> list[Family]:
        """Everything as it is now. Whoever fails to answer is left out, and named in the log once."""
        found: dict[str, Family] = {}
        for name, labels, read in self._reads:
            try:
                value = read()
            except Exception as error:  # noqa: BLE001 (one broken figure must not hide the others)
                self._complain(read, name, error)
                continue
            if value is not None:
                kind, help_ = self._known[name]
                found.setdefault(name, Family(name, kind, help_)).add(value, labels)
        for source in self._sources:
            try:
                made = list(source())
            except Exception as error:  # noqa: BLE001 (as above)
                self._complain(source, getattr(source, "__qualname__", repr(source)), error)
                continue
            for family in made:
                assert family.name not in found, f"{family.name} is told twice"
                found[family.name] = family
        return list(found.values())

    def render(self) -> str:
        """Everything as Prometheus reads it."""
        return render(self.families())

    def _add(self, name: str, kind: Kind, help_: str, read: Read, labels: Labels) -> None:
        known = self._known.setdefault(name, (kind, help_))
        assert known == (kind, help_), f"{name} was a {known[0]} with another description"
        self._reads.append((name, labels, read))

    def _complain(self, who: object, name: str, error: Exception) -> None:
        if who not in self._broken:
            self._broken.add(who)
            logger.error("the metric %s cannot be read", name, exc_info=error)
