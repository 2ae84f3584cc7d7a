"""Timing that survives a noisy machine: contestants take turns, CPU time is counted, the median round speaks."""

import time
from collections.abc import Callable
from statistics import median

Work = Callable[[], object]


def cpu_seconds(work: Work, repeats: int) -> float:
    """CPU seconds of one call, averaged over `repeats` calls in a row."""
    turns = range(repeats)
    start = time.process_time()
    for _ in turns:
        work()
    return (time.process_time() - start) / repeats


def compare(contestants: dict[str, Work], *, rounds: int = 15, seconds_a_round: float = 0.05) -> dict[str, float]:
    """Median CPU seconds of one call, for each contestant; all take their turn in every round."""
    repeats = {}
    for name, work in contestants.items():
        work()  # warm: first uses compile
        repeats[name] = max(1, round(seconds_a_round / max(cpu_seconds(work, 20), 1e-9)))
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            taken[name].append(cpu_seconds(work, repeats[name]))
    return {name: median(times) for name, times in taken.items()}
