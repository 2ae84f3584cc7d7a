"""Rounds: both systems are up, take turns (who begins changes), and every round gives a sample of each.

The first round of a fresh pair of servers is cold, the others are warm. Cases that are variations of each other share a
pair: then the first of them has the cold round. A case that fails on a system says so in the
results, and the next case goes on.
"""

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench.harness.case import Case, Trial
from bench.harness.figures import FIGURES, KAFKA, OTTLA, CaseResult, Figures, Sample, shown
from bench.harness.node_requests import NoResponse
from bench.harness.systems import SYSTEMS, ServerFailed, running_cluster
from bench.harness.tools import ToolFailed

Problem = (ServerFailed, ToolFailed, KafkaException, NoResponse, OSError)
"""What may go wrong with a server or a client, and is then part of the result."""
TOLD = (
    *("time_ms", "job_cpu_s", "server_cpu_s", "records_per_s", "p50_ms", "p99_ms", "rss_mb", "idle_percent"),
    *("fence_ms", "fence_cpu_s", "snapshot_ms", "stall_ms", "active_ms", "node_mb", "each_kb"),
    *("share_cpu_s", "share_p50_ms", "share_p99_ms"),
)

_RESERVE = 0.1
"""How much longer than they say cases may take, on a slower machine, before the last ones are left out."""
_QUICK = 0.5
"""How much of its time a case takes at the size of a quick run: what starts and stops does not shrink."""


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    scale: float = 1.0
    quick: bool = False
    lives: int | None = None
    warm_rounds: int | None = None
    systems: tuple[str, ...] = (OTTLA, KAFKA)
    sizes: tuple[int, ...] = ()
    """The sizes at which to measure, in place of those that a case with sizes names."""
    folder: Path | None = None
    """Where the servers keep their data; else in the system's folder for temporary files."""
    minutes: float | None = None
    """What all may take. What the cases take at least is set aside, and the rest is shared: when a case has used up its
    part, it has had its last round. One is left out when there is no time for it any more."""

    def lives_of(self, case: Case) -> int:
        return self.lives or (1 if self.quick else case.lives)

    def warm_rounds_of(self, case: Case) -> int:
        if self.warm_rounds is not None:
            return min(self.warm_rounds, case.warm_rounds)
        return min(1, case.warm_rounds) if self.quick else case.warm_rounds

    def can_go_on(self, case: Case) -> bool:
        """Whether there is more to do than the least."""
        return self.lives_of(case) > 1 or self.warm_rounds_of(case) > 1

    def seconds_of(self, case: Case) -> float:
        return case.seconds * (_QUICK if self.quick else 1.0)

    def sizes_of(self, case: Case) -> Sequence[int | None]:
        if self.sizes and case.sizes:
            return self.sizes
        return (case.quick_sizes or case.sizes if self.quick else case.sizes) or (None,)


def run_cases(cases: Iterable[Case], plan: Plan) -> list[CaseResult]:
    """Run cases one after the other, telling as it goes."""
    results: list[CaseResult] = []
    chosen = list(cases)
    first = time.perf_counter()
    with Servers(plan) as servers:
        for number, case in enumerate(chosen):
            began = time.perf_counter()
            left_s = None if plan.minutes is None else plan.minutes * 60 - (began - first)
            print(f"== {case.name}: {case.title}", flush=True)
            if left_s is not None and plan.seconds_of(case) > left_s:
                result = CaseResult(case.name, case.title, case.group)
                result.problems = dict.fromkeys(plan.systems, "left out: the time was up")
            else:
                share_s = None if left_s is None else share(chosen[number:], plan, left_s)
                result = run_case(case, plan, servers, share_s)
            for system, problem in result.problems.items():
                print(f"   {system}: {problem.splitlines()[-1]}", file=sys.stderr)
            print(f"   {time.perf_counter() - began:.0f} s", flush=True)
            results.append(result)
    return results


def share(waiting: Sequence[Case], plan: Plan, left_s: float) -> float:
    """How long the first of the waiting cases may take: as long as the least of it, and, where it can do with more, an
    equal part of what nobody needs."""
    first_s = plan.seconds_of(waiting[0])
    least_s = sum(plan.seconds_of(case) for case in waiting)
    if left_s < least_s:  # then all have less
        return max(0.0, first_s - (least_s - left_s) / len(waiting))
    spare_s = max(0.0, left_s - (1 + _RESERVE) * least_s)
    flexible = [plan.can_go_on(case) for case in waiting]
    return first_s + spare_s / sum(flexible) if flexible[0] else first_s


def run_case(case: Case, plan: Plan, servers: "Servers", share_s: float | None = None) -> CaseResult:
    """All lives and rounds of one case, on each system that can do it; with a share of time, as many as come
    next to it if each takes as long as the one before, and a warm one in any case."""
    result = CaseResult(
        case.name, case.title, case.group, dict(case.goals), dict(case.limits), dict(case.rises), case.axis
    )
    deadline = math.inf if share_s is None else time.perf_counter() + share_s
    lasted = 0.0
    for life in range(plan.lives_of(case)):
        began = time.perf_counter()
        if life and began + lasted / 2 > deadline:
            break
        trials = servers.start(case, result)
        try:
            first = 0 if servers.fresh or case.clients_stay else 1
            _take_turns(case, plan, life, first, trials, result, deadline)
        finally:
            servers.leave(case, result)
        lasted = time.perf_counter() - began
    return result


class Servers:
    """The clusters of both systems: those of one case, or those that cases which agree about them share."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._running = ExitStack()
        self._left_by: Case | None = None
        """Whose servers still run."""
        self._trials: dict[str, Trial] = {}
        self.fresh = True
        """Whether nobody has asked anything of them before this case."""

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self, case: Case, result: CaseResult) -> dict[str, Trial]:
        """A trial for each system that runs and that serves what the case needs."""
        self.fresh = self._left_by is None or not case.can_follow(self._left_by)
        if self.fresh:
            self._running.close()
            self._left_by = None
            folder = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=self._plan.folder))
            self._running.callback(shutil.rmtree, folder, ignore_errors=True)
            systems = [name for name in self._plan.systems if name not in result.problems]
            self._trials = {name: Trial(SYSTEMS[name], folder / name, self._plan.scale) for name in systems}
        for name, trial in self._trials.items():
            try:
                if self.fresh and case.nodes:
                    cluster = running_cluster(
                        trial.system, trial.folder, nodes=case.nodes, settings=case.server_settings
                    )
                    trial.running_cluster = self._running.enter_context(cluster)
                if trial.running_cluster is not None and case.needs and not trial.running_cluster.serves(case.needs):
                    result.problems[name] = "left out: it does not serve the APIs that this case needs"
            except Problem as error:
                result.problems[name] = str(error)
        return {name: trial for name, trial in self._trials.items() if name not in result.problems}

    def leave(self, case: Case, result: CaseResult) -> None:
        """End them, unless another case could go on with them."""
        if case.shares and not result.problems:
            self._left_by = case
        else:
            self._running.close()
            self._left_by = None


def _take_turns(
    case: Case, plan: Plan, life: int, first: int, trials: dict[str, Trial], result: CaseResult, deadline: float
) -> None:
    # A curve goes from small to large within one life: its rounds are its sizes, and none is called cold but the first.
    sizes = plan.sizes_of(case)
    lasted = 0.0
    for turn in range(first, 1 + max(first, plan.warm_rounds_of(case))):
        began = time.perf_counter()
        if turn > 1 and turn > first and began + lasted / 2 > deadline:
            break
        for x in sizes:
            order = list(trials) if (life + turn) % 2 == 0 else list(reversed(trials))
            for name in order:
                if name in result.problems:
                    continue
                trial = trials[name]
                trial.x = x
                try:
                    figures = case.work(trial)
                except Problem as error:
                    result.problems[name] = str(error)
                    continue
                sample = Sample(name, life, turn, figures, x)
                result.samples.append(sample)
                _tell(sample, figures)
        lasted = time.perf_counter() - began


def _tell(sample: Sample, figures: Figures) -> None:
    kind = "cold" if sample.cold else "warm"
    at = "" if sample.x is None else f" at {sample.x:,}"
    told = ", ".join(
        f"{FIGURES[name].title} {shown(figures[name])} {FIGURES[name].unit}" for name in TOLD if name in figures
    )
    print(f"   {kind} {sample.system:<6}{at} {told}", flush=True)
