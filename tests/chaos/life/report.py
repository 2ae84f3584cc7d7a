"""A long run of two clusters that counts the resources of each node after every round, and computes their growth.

    python -m tests.chaos.soak --life --minutes 30

A slope is that of the regression line through all counts of a process, without the first part of the run, in which
bounded caches fill up. During the whole run, no resource may grow by more than its allowance.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.life.census import BLOCKS, DISK, MEMORY, Allowance, Census
from tests.chaos.life.life import FEW, MANY, Life

NODES: Final = {"one node": 1, "three nodes": 3}
IDLE_PARTITIONS: Final = {1: 1_000, 3: 334}
_WARM_UP: Final = 0.3
"""The share of the run that is left out."""
_MAX_TYPES: Final = 8
_MIN_COUNTS: Final = 4
ALLOWED: Final = Allowance(
    descriptors=30,
    timers=40,
    blocks=150_000,
    memory_bytes=48 << 20,
    disk_bytes=32 << 20,
    of_types={
        **Allowance().of_types,
        # Caches have up to some ten thousand hashes of members, names of groups and client ids.
        "int": 60_000,
        "str": 40_000,
        "bytes": 20_000,
        "functools._lru_list_elem": 20_000,
    },
)


class Count(NamedTuple):
    """A census and its time."""

    time_s: float
    census: Census


class Slope(NamedTuple):
    """The growth of a resource according to the regression line."""

    name: str
    per_hour: float
    grown: float
    allowed: float

    @property
    def is_too_steep(self) -> bool:
        return self.grown > self.allowed


class LongLife:
    """A cluster of one node and one of three, which run side by side."""

    def __init__(self, folder: Path, seconds: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder, self._seconds = folder, seconds
        self._lives = {
            name: Life(folder / f"{nodes}", nodes=nodes, idle_partitions=IDLE_PARTITIONS[nodes])
            for name, nodes in NODES.items()
        }
        self.counts: dict[tuple[str, int], list[Count]] = {}

    def run(self) -> list[str]:
        """Run the rounds, write the report, and return the resources that grow too much."""
        with ExitStack() as stack, (self._folder / "counts.jsonl").open("w") as file:
            for life in self._lives.values():
                stack.enter_context(life.running())
                life.run_round(FEW)
            began = time.monotonic()
            rounds = 0
            while (time_s := time.monotonic() - began) < self._seconds:
                for name, life in self._lives.items():
                    life.run_round(MANY)
                    for number, census in life.count().items():
                        self.counts.setdefault((name, number), []).append(Count(time_s, census))
                        line = {"cluster": name, "node": number, "time_s": time_s, **asdict(census)}
                        file.write(json.dumps(line) + "\n")
                file.flush()
                rounds += 1
                print(f"{time_s:7.0f} s  round {rounds}: {self._memory()}", flush=True)
        problems = self.problems()
        text = "\n".join([*self.table(), "", *(problems or ["nothing grows"])])
        (self._folder / "report.md").write_text(text + "\n")
        print(text, flush=True)
        return problems

    def table(self) -> list[str]:
        """Return the slopes of all nodes as a Markdown table."""
        columns = ("node", "hours", "memory, MB/h", "blocks/h", "descriptors/h", "threads/h", "timers/h", "disk, MB/h")
        lines = [f"| {' | '.join(columns)} | objects/h, by type |", "|---" * (len(columns) + 1) + "|"]
        for (name, number), counts in self.counts.items():
            warm = _warm_counts(counts)
            if len(warm) < _MIN_COUNTS:
                lines.append(f"| {name}, {number} | – | restarted at the end | | | | | | |")
                continue
            figures = {slope.name: slope for slope in compute_slopes(warm)}
            objects = [slope for slope in figures.values() if slope.name in warm[-1].census.objects]
            objects.sort(key=lambda slope: -slope.per_hour)
            steepest = ", ".join(f"{slope.name} {slope.per_hour:+,.0f}" for slope in objects[:_MAX_TYPES])
            descriptors = sum(slope.per_hour for slope in figures.values() if slope.name.startswith("descriptors"))
            lines.append(
                f"| {name}, {number} | {(warm[-1].time_s - warm[0].time_s) / 3600:.2f}"
                f" | {figures[MEMORY].per_hour / (1 << 20):+.1f} | {figures[BLOCKS].per_hour:+,.0f}"
                f" | {descriptors:+.0f} | {figures['threads'].per_hour:+.1f} | {figures['timers'].per_hour:+.1f}"
                f" | {figures[DISK].per_hour / (1 << 20):+.1f} | {steepest} |"
            )
        return lines

    def problems(self) -> list[str]:
        """Return the resources that grew by more than is allowed."""
        return [
            f"{name}, node {number}: {slope.name} grows by {slope.per_hour:+,.0f} an hour"
            for (name, number), counts in self.counts.items()
            if len(warm := _warm_counts(counts)) >= _MIN_COUNTS
            for slope in compute_slopes(warm)
            if slope.is_too_steep
        ]

    def _memory(self) -> str:
        last = ((name, number, counts[-1].census) for (name, number), counts in self.counts.items())
        return ", ".join(
            f"{name} {number}: {census.figures[MEMORY] / (1 << 20):.0f} MB" for name, number, census in last
        )


def compute_slopes(counts: Sequence[Count], allowed: Allowance = ALLOWED) -> list[Slope]:
    """Return the slope of every resource of a process."""
    last = counts[-1].census
    slopes = []
    for name in last.objects:
        first = counts[0].census.objects.get(name, 0)
        objects = [count.census.objects for count in counts]
        slopes.append(_compute_slope(name, counts, objects, allowed.for_type(name, first)))
    for name in last.descriptors:
        descriptors = [count.census.descriptors for count in counts]
        slope = _compute_slope(name, counts, descriptors, allowed.descriptors)
        slopes.append(slope._replace(name=f"descriptors: {name}"))
    figures = [count.census.figures for count in counts]
    return [*slopes, *(_compute_slope(name, counts, figures, allowed.for_figure(name)) for name in last.figures)]


def _compute_slope(name: str, counts: Sequence[Count], resources: Sequence[Mapping[str, int]], allowed: float) -> Slope:
    """Compute a linear regression by least squares."""
    pairs = [(count.time_s, values.get(name, 0)) for count, values in zip(counts, resources, strict=True)]
    mean_s = sum(time_s for time_s, _ in pairs) / len(pairs)
    mean = sum(value for _, value in pairs) / len(pairs)
    spread = sum((time_s - mean_s) ** 2 for time_s, _ in pairs)
    per_s = sum((time_s - mean_s) * (value - mean) for time_s, value in pairs) / spread if spread else 0.0
    return Slope(name, per_s * 3600, per_s * (pairs[-1][0] - pairs[0][0]), allowed)


def _warm_counts(counts: Sequence[Count]) -> list[Count]:
    """Return the counts of the last process of a node, without the first part of its time."""
    last_process = [count for count in counts if count.census.process == counts[-1].census.process]
    start_s = last_process[0].time_s + _WARM_UP * (last_process[-1].time_s - last_process[0].time_s)
    return [count for count in last_process if count.time_s >= start_s]
