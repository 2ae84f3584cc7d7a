"""What is measured: names, units, which way is better; medians, spreads and ratios of samples.

A ratio is always Ottla's figure over Kafka's of the same round, so that what disturbed both disturbs it little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

OTTLA, KAFKA = "ottla", "kafka"
Figures = dict[str, float]


@dataclass(frozen=True)
class Figure:
    """One thing that is measured."""

    title: str
    unit: str
    more_is_better: bool = False


FIGURES = {
    "server_cpu_s": Figure("server CPU", "s"),
    "job_cpu_s": Figure("CPU of all that works for a job", "s"),
    "records_per_s": Figure("throughput", "records/s", more_is_better=True),
    "mb_per_s": Figure("throughput", "MB/s", more_is_better=True),
    "time_ms": Figure("time", "ms"),
    "p50_ms": Figure("p50", "ms"),
    "p99_ms": Figure("p99", "ms"),
    "p999_ms": Figure("p99.9", "ms"),
    "max_ms": Figure("longest", "ms"),
    "share_cpu_s": Figure("server CPU, share consumer", "s"),
    "share_p50_ms": Figure("p50, share consumer", "ms"),
    "share_p99_ms": Figure("p99, share consumer", "ms"),
    "fence_ms": Figure("a broker is fenced", "ms"),
    "fence_cpu_s": Figure("CPU for that", "s"),
    "snapshot_ms": Figure("a snapshot is written", "ms"),
    "stall_ms": Figure("longest wait during a snapshot", "ms"),
    "active_ms": Figure("start to active", "ms"),
    "rss_mb": Figure("RSS after", "MB"),
    "rss_peak_mb": Figure("RSS, highest", "MB"),
    "pss_mb": Figure("PSS after", "MB"),
    "node_mb": Figure("RSS of one node", "MB"),
    "each_kb": Figure("memory of each", "kB"),
    "disk_mb": Figure("on disk", "MB"),
    "idle_percent": Figure("idle cost", "% of a core"),
    "client_cpu_s": Figure("client CPU", "s"),
    "wall_s": Figure("wall clock", "s"),
    "others_cores": Figure("cores busy with other work", "cores"),
}
UNCOMPARED = {"wall_s", "others_cores"}
"""About the run, not about the systems."""


@dataclass(frozen=True)
class Sample:
    """What one run of one case on one system gave. `x` is the size, where a case is measured at several."""

    system: str
    life: int
    turn: int
    figures: Figures
    x: int | None = None

    @property
    def cold(self) -> bool:
        """The first run of a fresh process."""
        return self.turn == 0


@dataclass(frozen=True)
class Spread:
    """The middle and both ends of some values."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Comparison:
    """One figure of one case: each system's, and the ratio of the two."""

    figure: str
    each: Mapping[str, Spread]
    ratio: Spread | None
    goal: float | None = None

    @property
    def misses(self) -> bool:
        """There is a goal, and the middle ratio does not reach it."""
        if self.goal is None or self.ratio is None:
            return False
        better = FIGURES[self.figure].more_is_better
        return self.ratio.middle < self.goal if better else self.ratio.middle > self.goal


@dataclass
class CaseResult:
    """Everything that was measured of one case."""

    name: str
    title: str
    group: str
    goals: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    rises: dict[str, float] = field(default_factory=dict)
    axis: str | None = None
    samples: list[Sample] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    """System → why it could not be measured."""

    @property
    def sizes(self) -> list[int | None]:
        """The sizes measured, in order; one None where a case has no sizes."""
        found = {sample.x for sample in self.samples}
        return sorted(found, key=lambda x: x or 0)

    def phase(self, *, cold: bool, x: int | None = None) -> list[Sample]:
        return [sample for sample in self.samples if sample.cold == cold and sample.x == x]

    def settled(self, x: int | None = None) -> list[Sample]:
        """The warm samples; where a case has none (a start is always cold), all of them."""
        return self.phase(cold=False, x=x) or self.phase(cold=True, x=x)

    def own(self, figure: str) -> dict[int | None, float]:
        """Ottla's figure at each size at which it was measured."""
        values = {
            x: [s.figures[figure] for s in self.settled(x) if s.system == OTTLA and figure in s.figures]
            for x in self.sizes
        }
        return {x: median(many) for x, many in values.items() if many}

    def compare(self, samples: Iterable[Sample]) -> list[Comparison]:
        """Each figure of these samples, in the table's order."""
        samples = list(samples)
        found = []
        for name in FIGURES:
            values = {
                system: [s.figures[name] for s in samples if s.system == system and name in s.figures]
                for system in (OTTLA, KAFKA)
            }
            each = {system: Spread.of(many) for system, many in values.items() if many}
            if each:
                found.append(Comparison(name, each, ratio_of(samples, name), self.goals.get(name)))
        return found


def ratio_of(samples: Sequence[Sample], figure: str) -> Spread | None:
    """Ottla over Kafka, round by round; None where nothing can be divided."""
    if figure in UNCOMPARED:
        return None
    by_round = {(s.system, s.life, s.turn, s.x): s.figures[figure] for s in samples if figure in s.figures}
    ratios = [
        ours / theirs
        for (system, *when), ours in by_round.items()
        if system == OTTLA and (theirs := by_round.get((KAFKA, *when), 0.0)) > 0  # type: ignore[arg-type]
    ]
    return Spread.of(ratios) if ratios else None


def percentiles(latencies_ms: Sequence[float]) -> Figures:
    """The percentiles that this many values can tell."""
    ordered = sorted(latencies_ms)
    found = {"p50_ms": ordered[len(ordered) // 2], "max_ms": ordered[-1]}
    for name, share, least in (("p99_ms", 0.99, 100), ("p999_ms", 0.999, 1000)):
        if len(ordered) >= least:
            found[name] = ordered[int(len(ordered) * share)]
    return found


def shown(value: float) -> str:
    """A value with three digits that say something."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
