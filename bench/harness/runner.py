"""Runs cases in rounds. Both systems are up and take turns, and each round yields a sample of each system.

The system that begins changes from round to round. The first round on fresh servers is cold, the others are warm. Cases
that are variations of each other share servers, and only the first of them has a cold round. If a case fails on a
system, the results contain the error, and the run continues with the next case.
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
from bench.harness.figures import FIGURES, KAFKA, OTTLA, CaseResult, Figures, Sample, format_value
from bench.harness.node_requests import NoResponse
from bench.harness.systems import SYSTEMS, ServerFailed, running_cluster
from bench.harness.tools import ToolFailed

Problem = (ServerFailed, ToolFailed, KafkaException, NoResponse, OSError)
"""Failures of a server or a client, which become part of the result."""
LEFT_OUT = "left out"
"""The first words of a problem that is not a failure."""
PRINTED_FIGURES = (
    *("time_ms", "job_cpu_s", "server_cpu_s", "records_per_s", "p50_ms", "p99_ms", "rss_mb", "idle_percent"),
    *("fence_ms", "fence_cpu_s", "snapshot_ms", "stall_ms", "active_ms", "node_mb", "each_kb"),
    *("share_cpu_s", "share_p50_ms", "share_p99_ms"),
)

_RESERVE = 0.1
"""How much longer than `Case.seconds` cases may take on a slower machine before the last ones are left out."""
_QUICK_SHARE = 0.5
"""The share of `Case.seconds` that a quick run takes: starts and stops do not shrink with the size."""


@dataclass(frozen=True)
class Plan:
    """The scope of a run: systems, sizes, rounds and time."""

    scale: float = 1.0
    quick: bool = False
    lives: int | None = None
    warm_rounds: int | None = None
    systems: tuple[str, ...] = (OTTLA, KAFKA)
    sizes: tuple[int, ...] = ()
    """Sizes that replace those of cases with sizes."""
    folder: Path | None = None
    """The parent of the servers' data; None means the system's temporary folder."""
    minutes: float | None = None
    """The time limit of the run. The minimum duration of each case is reserved, and the rest is shared: a case begins
    no round after its share is used up. A case is left out if there is no time left for it."""

    def lives_of(self, case: Case) -> int:
        return self.lives or (1 if self.quick else case.lives)

    def warm_rounds_of(self, case: Case) -> int:
        if self.warm_rounds is not None:
            return min(self.warm_rounds, case.warm_rounds)
        return min(1, case.warm_rounds) if self.quick else case.warm_rounds

    def is_flexible(self, case: Case) -> bool:
        """Whether the case has more than its minimum of rounds."""
        return self.lives_of(case) > 1 or self.warm_rounds_of(case) > 1

    def seconds_of(self, case: Case) -> float:
        return case.seconds * (_QUICK_SHARE if self.quick else 1.0)

    def sizes_of(self, case: Case) -> Sequence[int | None]:
        if self.sizes and case.sizes:
            return self.sizes
        return (case.quick_sizes or case.sizes if self.quick else case.sizes) or (None,)


def run_cases(cases: Iterable[Case], plan: Plan) -> list[CaseResult]:
    """Run cases one after the other, and print their progress."""
    results: list[CaseResult] = []
    chosen = list(cases)
    run_began = time.perf_counter()
    with Servers(plan) as servers:
        for number, case in enumerate(chosen):
            began = time.perf_counter()
            left_s = None if plan.minutes is None else plan.minutes * 60 - (began - run_began)
            print(f"== {case.name}: {case.title}", flush=True)
            if left_s is not None and plan.seconds_of(case) > left_s:
                result = CaseResult(case.name, case.title, case.group)
                result.problems = dict.fromkeys(plan.systems, f"{LEFT_OUT}: the time was up")
            else:
                share_s = None if left_s is None else compute_share(chosen[number:], plan, left_s)
                result = run_case(case, plan, servers, share_s)
            for system, problem in result.problems.items():
                print(f"   {system}: {problem.splitlines()[-1]}", file=sys.stderr)
            print(f"   {time.perf_counter() - began:.0f} s", flush=True)
            results.append(result)
    return results


def compute_share(waiting: Sequence[Case], plan: Plan, left_s: float) -> float:
    """Return how long the first waiting case may take: its minimum and, if it is flexible, an equal part of the spare
    time."""
    first_s = plan.seconds_of(waiting[0])
    reserved_s = sum(plan.seconds_of(case) for case in waiting)
    if left_s < reserved_s:  # each case gets less
        return max(0.0, first_s - (reserved_s - left_s) / len(waiting))
    spare_s = max(0.0, left_s - (1 + _RESERVE) * reserved_s)
    flexible = [plan.is_flexible(case) for case in waiting]
    return first_s + spare_s / sum(flexible) if flexible[0] else first_s


def run_case(case: Case, plan: Plan, servers: "Servers", share_s: float | None = None) -> CaseResult:
    """Run all lives and rounds of a case on each system that serves it.

    With a share of time, run the number of rounds that comes closest to it if each takes as long as the one before, and
    at least one warm round.
    """
    result = CaseResult(
        case.name, case.title, case.group, dict(case.goals), dict(case.limits), dict(case.rises), case.axis
    )
    deadline = math.inf if share_s is None else time.perf_counter() + share_s
    last_duration_s = 0.0
    for life in range(plan.lives_of(case)):
        began = time.perf_counter()
        if life and began + last_duration_s / 2 > deadline:
            break
        trials = servers.start(case, result)
        try:
            first_turn = 0 if servers.are_fresh or case.clients_stay else 1
            _take_turns(case, plan, life, first_turn, trials, result, deadline)
        finally:
            servers.release(case, result)
        last_duration_s = time.perf_counter() - began
    return result


class Servers:
    """The clusters of both systems, for one case or for several cases that share them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._running = ExitStack()
        self._last_case: Case | None = None
        """The case whose servers still run."""
        self._trials: dict[str, Trial] = {}
        self.are_fresh = True
        """Whether no other case has used the servers before this one."""

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self, case: Case, result: CaseResult) -> dict[str, Trial]:
        """Return a trial for each system that has started and that serves the APIs of the case."""
        self.are_fresh = self._last_case is None or not case.can_follow(self._last_case)
        if self.are_fresh:
            self._running.close()
            self._last_case = None
            folder = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=self._plan.folder))
            self._running.callback(shutil.rmtree, folder, ignore_errors=True)
            systems = [name for name in self._plan.systems if name not in result.problems]
            self._trials = {name: Trial(SYSTEMS[name], folder / name, self._plan.scale) for name in systems}
        for name, trial in self._trials.items():
            try:
                if self.are_fresh and case.nodes:
                    cluster = running_cluster(
                        trial.system, trial.folder, nodes=case.nodes, settings=case.server_settings
                    )
                    trial.running_cluster = self._running.enter_context(cluster)
                if trial.running_cluster is not None and case.needs and not trial.running_cluster.serves(case.needs):
                    result.problems[name] = f"{LEFT_OUT}: it does not serve the APIs that this case needs"
            except Problem as error:
                result.problems[name] = str(error)
        return {name: trial for name, trial in self._trials.items() if name not in result.problems}

    def release(self, case: Case, result: CaseResult) -> None:
        """Stop the servers, unless another case can reuse them."""
        if case.shares and not result.problems:
            self._last_case = case
        else:
            self._running.close()
            self._last_case = None


def _take_turns(
    case: Case, plan: Plan, life: int, first_turn: int, trials: dict[str, Trial], result: CaseResult, deadline: float
) -> None:
    # A curve goes from small to large within one life: a turn runs all sizes, and only the first turn counts as cold.
    sizes = plan.sizes_of(case)
    last_duration_s = 0.0
    for turn in range(first_turn, 1 + max(first_turn, plan.warm_rounds_of(case))):
        began = time.perf_counter()
        if turn > 1 and turn > first_turn and began + last_duration_s / 2 > deadline:
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
                _print_sample(sample, figures)
        last_duration_s = time.perf_counter() - began


def _print_sample(sample: Sample, figures: Figures) -> None:
    kind = "cold" if sample.cold else "warm"
    size = "" if sample.x is None else f" at {sample.x:,}"
    values = ", ".join(
        f"{FIGURES[name].title} {format_value(figures[name])} {FIGURES[name].unit}"
        for name in PRINTED_FIGURES
        if name in figures
    )
    print(f"   {kind} {sample.system:<6}{size} {values}", flush=True)
