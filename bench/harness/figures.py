"""Figures with their units and better direction; medians, spreads and ratios of samples.

A ratio divides Ottla's figure by Kafka's figure of the same round, so that a disturbance of both cancels out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

OTTLA, KAFKA = "ottla", "kafka"
Figures = dict[str, float]


@dataclass(frozen=True)
class Figure:
    """A quantity that is measured."""

    title: str
    unit: str
    more_is_better: bool = False


FIGURES = {
    "server_cpu_s": Figure("server CPU", "s"),
    "job_cpu_s": Figure("CPU of all processes of a job", "s"),
    "records_per_s": Figure("throughput", "records/s", more_is_better=True),
    "mb_per_s": Figure("throughput", "MB/s", more_is_better=True),
    "time_ms": Figure("time", "ms"),
    "p50_ms": Figure("p50", "ms"),
    "p99_ms": Figure("p99", "ms"),
    "p999_ms": Figure("p99.9", "ms"),
    "max_ms": Figure("maximum", "ms"),
    "share_cpu_s": Figure("server CPU, share consumer", "s"),
    "share_p50_ms": Figure("p50, share consumer", "ms"),
    "share_p99_ms": Figure("p99, share consumer", "ms"),
    "fence_ms": Figure("time to fence a broker", "ms"),
    "fence_cpu_s": Figure("CPU to fence a broker", "s"),
    "snapshot_ms": Figure("time to write a snapshot", "ms"),
    "stall_ms": Figure("longest response time during a snapshot", "ms"),
    "active_ms": Figure("time from start to active", "ms"),
    "rss_mb": Figure("RSS at the end", "MB"),
    "rss_peak_mb": Figure("RSS, peak", "MB"),
    "pss_mb": Figure("PSS at the end", "MB"),
    "node_mb": Figure("RSS of one node", "MB"),
    "each_kb": Figure("memory per item", "kB"),
    "disk_mb": Figure("disk space", "MB"),
    "idle_percent": Figure("CPU while idle", "% of a core"),
    "client_cpu_s": Figure("client CPU", "s"),
    "wall_s": Figure("wall clock", "s"),
    "others_cores": Figure("cores busy with other work", "cores"),
}
UNCOMPARED = {"wall_s", "others_cores"}
"""Figures about the run, not about the systems."""


@dataclass(frozen=True)
class Sample:
    """The figures of one run of a case on one system. `x` is the size if the case has several."""

    system: str
    life: int
    turn: int
    figures: Figures
    x: int | None = None

    @property
    def cold(self) -> bool:
        """Whether this is the first run on fresh servers."""
        return self.turn == 0


@dataclass(frozen=True)
class Spread:
    """The median, minimum and maximum of some values."""

    median: float
    minimum: float
    maximum: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Comparison:
    """One figure of one case: the spread of each system, and that of the ratio."""

    figure: str
    spreads: Mapping[str, Spread]
    ratio: Spread | None
    goal: float | None = None

    @property
    def misses_goal(self) -> bool:
        """Whether there is a goal and the median ratio does not reach it."""
        if self.goal is None or self.ratio is None:
            return False
        more_is_better = FIGURES[self.figure].more_is_better
        return self.ratio.median < self.goal if more_is_better else self.ratio.median > self.goal


@dataclass
class CaseResult:
    """All samples of one case, and its goals."""

    name: str
    title: str
    group: str
    goals: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    rises: dict[str, float] = field(default_factory=dict)
    axis: str | None = None
    samples: list[Sample] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    """System → why its measurement failed or was left out."""

    @property
    def sizes(self) -> list[int | None]:
        """The measured sizes in ascending order; `[None]` if the case has no sizes."""
        sizes = {sample.x for sample in self.samples}
        return sorted(sizes, key=lambda x: x or 0)

    def select_samples(self, *, cold: bool, x: int | None = None) -> list[Sample]:
        return [sample for sample in self.samples if sample.cold == cold and sample.x == x]

    def settled_samples(self, x: int | None = None) -> list[Sample]:
        """Return the warm samples, or the cold ones if the case has no others (a start is always cold)."""
        return self.select_samples(cold=False, x=x) or self.select_samples(cold=True, x=x)

    def ottla_values(self, figure: str) -> dict[int | None, float]:
        """Return the median of Ottla's figure at each measured size."""
        values = {
            x: [s.figures[figure] for s in self.settled_samples(x) if s.system == OTTLA and figure in s.figures]
            for x in self.sizes
        }
        return {x: median(samples) for x, samples in values.items() if samples}

    def compare(self, samples: Iterable[Sample]) -> list[Comparison]:
        """Return a comparison of each figure in these samples, in the order of `FIGURES`."""
        samples = list(samples)
        comparisons = []
        for name in FIGURES:
            values = {
                system: [s.figures[name] for s in samples if s.system == system and name in s.figures]
                for system in (OTTLA, KAFKA)
            }
            spreads = {system: Spread.from_values(figures) for system, figures in values.items() if figures}
            if spreads:
                comparisons.append(Comparison(name, spreads, compute_ratio(samples, name), self.goals.get(name)))
        return comparisons


def compute_ratio(samples: Sequence[Sample], figure: str) -> Spread | None:
    """Divide Ottla's figure by Kafka's, round by round. Return None if no round has both."""
    if figure in UNCOMPARED:
        return None
    by_round = {(s.system, s.life, s.turn, s.x): s.figures[figure] for s in samples if figure in s.figures}
    ratios = [
        ottla / kafka
        for (system, *round_key), ottla in by_round.items()
        if system == OTTLA and (kafka := by_round.get((KAFKA, *round_key), 0.0)) > 0  # type: ignore[arg-type]
    ]
    return Spread.from_values(ratios) if ratios else None


def compute_percentiles(latencies_ms: Sequence[float]) -> Figures:
    """Return the percentiles for which there are enough values."""
    ordered = sorted(latencies_ms)
    figures = {"p50_ms": ordered[len(ordered) // 2], "max_ms": ordered[-1]}
    for name, share, required in (("p99_ms", 0.99, 100), ("p999_ms", 0.999, 1000)):
        if len(ordered) >= required:
            figures[name] = ordered[int(len(ordered) * share)]
    return figures


def format_value(value: float) -> str:
    """Format a value with three significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
