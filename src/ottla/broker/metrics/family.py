"""Metric families and their text for Prometheus (exposition format 0.0.4)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.storage.state_machine.histogram import SUM, Counts, cumulated, quantile, total

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of Kafka's metrics."""
Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = MappingProxyType({})
_is_name = re.compile(r"[a-z_][a-z0-9_]*").fullmatch
_escapes = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Sample(NamedTuple):
    """One line: a suffix of the family's name, labels, a value."""

    suffix: str
    labels: Labels
    value: float


@dataclass(slots=True)
class Family:
    """A metric with all its samples."""

    name: str
    kind: Kind
    help: str
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert _is_name(self.name), f"{self.name!r} is not a valid metric name"

    def add(self, value: float, labels: Labels = NO_LABELS) -> None:
        """Add the sample of a counter or a gauge."""
        self.samples.append(Sample("", labels, value))

    def add_summary(self, counts: Counts, recent: Counts, unit: float, labels: Labels = NO_LABELS) -> None:
        """Add the quantiles of recent values, and the sum and the count of all values."""
        assert self.kind is Kind.SUMMARY
        for share in QUANTILES:
            self.samples.append(Sample("", {**labels, "quantile": str(share)}, quantile(recent, share) / unit))
        self._add_totals(counts, unit, labels)

    def add_histogram(
        self, counts: Counts, first_bits: int, last_bits: int, unit: float, labels: Labels = NO_LABELS
    ) -> None:
        """Add buckets up to 2^first_bits, ..., 2^last_bits, and one for larger values."""
        assert self.kind is Kind.HISTOGRAM
        for end, below in cumulated(counts, first_bits, last_bits):
            self.samples.append(Sample("_bucket", {**labels, "le": repr(end / unit)}, below))
        self.samples.append(Sample("_bucket", {**labels, "le": "+Inf"}, total(counts)))
        self._add_totals(counts, unit, labels)

    def _add_totals(self, counts: Counts, unit: float, labels: Labels) -> None:
        self.samples.append(Sample("_sum", labels, counts[SUM] / unit))
        self.samples.append(Sample("_count", labels, total(counts)))


def counter(name: str, help_: str) -> Family:
    assert name.endswith("_total"), f"the name of the counter {name} must end in _total"
    return Family(name, Kind.COUNTER, help_)


def gauge(name: str, help_: str) -> Family:
    return Family(name, Kind.GAUGE, help_)


def summary(name: str, help_: str) -> Family:
    return Family(name, Kind.SUMMARY, help_)


def histogram(name: str, help_: str) -> Family:
    return Family(name, Kind.HISTOGRAM, help_)


def render(families: Iterable[Family]) -> str:
    """Return the text of all families, sorted by name."""
    lines: list[str] = []
    for family in sorted(families, key=lambda family: family.name):
        if family.samples:
            lines.append(f"# HELP {family.name} {_escape_help(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [
                f"{family.name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in family.samples
            ]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{text.translate(_escapes)}"' for name, text in labels.items()) + "}"


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if isinstance(value, int) else repr(value)
