"""Rounds: both systems are up, take turns (who begins changes), and every round gives a sample of each.

The first round of a fresh pair of servers is cold, the others are warm. A case that fails on a system says so in the
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

from bench import securing
from bench.asking import Unanswered
from bench.case import Case, Trial
from bench.figures import FIGURES, KAFKA, OTTLA, CaseResult, Figures, Sample, shown
from bench.systems import SYSTEMS, Cluster, ServerFailed, running
from bench.tools import ToolFailed

Problem = (ServerFailed, ToolFailed, KafkaException, Unanswered, OSError)
"""What may go wrong with a server or a client, and is then part of the result."""
TOLD = (
    *("time_ms", "job_cpu_s", "server_cpu_s", "records_per_s", "p99_ms", "rss_mb", "idle_percent"),
    *("fence_ms", "fence_cpu_s", "snapshot_ms", "stall_ms", "active_ms", "each_kb"),
)

_SHARE = 0.75
"""How much of its fair share of the time a case may begin rounds in: some take longer with the least that is done."""


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    scale: float = 1.0
    quick: bool = False
    lives: int | None = None
    warm_rounds: int | None = None
    systems: tuple[str, ...] = (OTTLA, KAFKA)
    folder: Path | None = None
    """Where the servers keep their data; else in the system's folder for temporary files."""
    minutes: float | None = None
    """What all may take. Each case has its share of what is left: when that is used up, it has had its last round. A
    case is left out when one as long as the last would end too late."""

    def lives_of(self, case: Case) -> int:
        return self.lives or (1 if self.quick else case.lives)

    def warm_rounds_of(self, case: Case) -> int:
        if self.warm_rounds is not None:
            return min(self.warm_rounds, case.warm_rounds)
        return min(1, case.warm_rounds) if self.quick else case.warm_rounds

    def sizes_of(self, case: Case) -> Sequence[int | None]:
        return (case.quick_sizes or case.sizes if self.quick else case.sizes) or (None,)


def run_cases(cases: Iterable[Case], plan: Plan) -> list[CaseResult]:
    """Run cases one after the other, telling as it goes."""
    results: list[CaseResult] = []
    waiting = list(cases)
    first, lasted = time.perf_counter(), 0.0
    for case in waiting:
        began = time.perf_counter()
        left_s = None if plan.minutes is None else plan.minutes * 60 - (began - first)
        print(f"== {case.name}: {case.title}", flush=True)
        if left_s is not None and lasted > left_s:
            result = CaseResult(case.name, case.title, case.group)
            result.problems = dict.fromkeys(plan.systems, "left out: the time was up")
        else:
            share_s = None if left_s is None else _SHARE * left_s / (len(waiting) - len(results))
            result = run_case(case, plan, share_s)
            lasted = time.perf_counter() - began
        for system, problem in result.problems.items():
            print(f"   {system}: {problem.splitlines()[0]}", file=sys.stderr)
        print(f"   {time.perf_counter() - began:.0f} s", flush=True)
        results.append(result)
    return results


def run_case(case: Case, plan: Plan, share_s: float | None = None) -> CaseResult:
    """All lives and rounds of one case, on each system that can do it; with a share of time, as many as begin in it,
    and a cold and a warm one in any case."""
    result = CaseResult(case.name, case.title, case.group, dict(case.goals), case.axis)
    deadline = math.inf if share_s is None else time.perf_counter() + share_s
    for life in range(plan.lives_of(case)):
        if life and time.perf_counter() > deadline:
            break
        folder = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=plan.folder))
        try:
            with ExitStack() as stack:
                trials = _start(case, plan, folder, stack, result)
                _take_turns(case, plan, life, trials, result, deadline)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def _start(case: Case, plan: Plan, folder: Path, stack: ExitStack, result: CaseResult) -> dict[str, Trial]:
    """A trial for each system that could be started and that serves what the case needs."""
    trials: dict[str, Trial] = {}
    for name in plan.systems:
        if name in result.problems:
            continue
        system, own = SYSTEMS[name], folder / name
        trial = Trial(system, own, plan.scale)
        if case.nodes:
            try:
                settings = {**case.settings, **(securing.server_settings() if case.secured else {})}
                trial.running = stack.enter_context(running(system, own, nodes=case.nodes, settings=settings))
                if not _can(trial.running, case):
                    result.problems[name] = "left out: it does not serve the APIs that this case needs"
                    continue
            except Problem as error:
                result.problems[name] = str(error)
                continue
        trials[name] = trial
    return trials


def _can(cluster: Cluster, case: Case) -> bool:
    return not case.needs or cluster.serves(case.needs)


def _take_turns(
    case: Case, plan: Plan, life: int, trials: dict[str, Trial], result: CaseResult, deadline: float
) -> None:
    # A curve goes from small to large within one life: its rounds are its sizes, and none is called cold but the first.
    sizes = plan.sizes_of(case)
    for turn in range(1 + plan.warm_rounds_of(case)):
        if turn > 1 and time.perf_counter() > deadline:
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


def _tell(sample: Sample, figures: Figures) -> None:
    kind = "cold" if sample.cold else "warm"
    at = "" if sample.x is None else f" at {sample.x:,}"
    told = ", ".join(
        f"{FIGURES[name].title} {shown(figures[name])} {FIGURES[name].unit}" for name in TOLD if name in figures
    )
    print(f"   {kind} {sample.system:<6}{at} {told}", flush=True)
