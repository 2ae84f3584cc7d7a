"""Comparisons on a noisy machine: contestants take turns, and the result is the median CPU time of the rounds."""

import time
from collections.abc import Callable
from statistics import median

Work = Callable[[], object]


def cpu_seconds(work: Work, repeats: int) -> float:
    """Return the CPU seconds of one call, averaged over `repeats` calls in a row."""
    numbers = range(repeats)
    start = time.process_time()
    for _ in numbers:
        work()
    return (time.process_time() - start) / repeats


def compare(contestants: dict[str, Work], *, rounds: int = 15, seconds_a_round: float = 0.05) -> dict[str, float]:
    """Return the median CPU seconds of one call of each contestant. In each round, every contestant runs once."""
    repeats = {}
    for name, work in contestants.items():
        work()  # first uses compile
        repeats[name] = max(1, round(seconds_a_round / max(cpu_seconds(work, 20), 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            times[name].append(cpu_seconds(work, repeats[name]))
    return {name: median(seconds) for name, seconds in times.items()}
