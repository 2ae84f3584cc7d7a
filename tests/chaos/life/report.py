"""Half an hour of life and more: two clusters, what each node holds after every round, and how fast that grows.

    python -m tests.chaos.soak --life --minutes 30

A slope is that of the line through all counts of one process, but for the first part, in which what is bounded comes up
to its bounds. A type's objects, a node's descriptors and so on must not grow by more in the whole time than is allowed
between two moments.
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
_WARM: Final = 0.3
"""The part of the time that is left out."""
_MOST_TYPES: Final = 8
_LEAST_COUNTS: Final = 4
ALLOWED: Final = Allowance(
    descriptors=30,
    timers=40,
    blocks=150_000,
    memory_bytes=48 << 20,
    disk_bytes=32 << 20,
    of_types={
        **Allowance().of_types,
        # Hashes of members, names of groups and client ids fill caches of some ten thousand.
        "int": 60_000,
        "str": 40_000,
        "bytes": 20_000,
        "functools._lru_list_elem": 20_000,
    },
)


class Count(NamedTuple):
    """A census, and when it was taken."""

    at_s: float
    census: Census


class Slope(NamedTuple):
    """How fast something grows, and by how much it grew as the line has it."""

    what: str
    per_hour: float
    grown: float
    allowed: float

    @property
    def is_too_much(self) -> bool:
        return self.grown > self.allowed


class LongLife:
    """Clusters of one and of three nodes, which live side by side."""

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
        """What grows; nothing if all is well."""
        with ExitStack() as stack, (self._folder / "counts.jsonl").open("w") as kept:
            for life in self._lives.values():
                stack.enter_context(life.running())
                life.round(FEW)
            began = time.monotonic()
            rounds = 0
            while (at_s := time.monotonic() - began) < self._seconds:
                for name, life in self._lives.items():
                    life.round(MANY)
                    for number, census in life.counts().items():
                        self.counts.setdefault((name, number), []).append(Count(at_s, census))
                        kept.write(json.dumps({"cluster": name, "node": number, "at_s": at_s, **asdict(census)}) + "\n")
                kept.flush()
                rounds += 1
                print(f"{at_s:7.0f} s  round {rounds}: {self._memory()}", flush=True)
        problems = self.problems()
        text = "\n".join([*self.table(), "", *(problems or ["nothing grows"])])
        (self._folder / "report.md").write_text(text + "\n")
        print(text, flush=True)
        return problems

    def table(self) -> list[str]:
        """The slopes of all nodes, as Markdown."""
        columns = ("node", "hours", "memory, MB/h", "blocks/h", "descriptors/h", "threads/h", "timers/h", "disk, MB/h")
        lines = [f"| {' | '.join(columns)} | objects/h, by type |", "|---" * (len(columns) + 1) + "|"]
        for (name, number), counts in self.counts.items():
            same = _of_one_process(counts)
            if len(same) < _LEAST_COUNTS:
                lines.append(f"| {name}, {number} | – | was stopped in the end | | | | | | |")
                continue
            figures = {slope.what: slope for slope in slopes(same)}
            objects = [slope for slope in figures.values() if slope.what in same[-1].census.objects]
            objects.sort(key=lambda slope: -slope.per_hour)
            most = ", ".join(f"{each.what} {each.per_hour:+,.0f}" for each in objects[:_MOST_TYPES])
            descriptors = sum(each.per_hour for each in figures.values() if each.what.startswith("descriptors"))
            lines.append(
                f"| {name}, {number} | {(same[-1].at_s - same[0].at_s) / 3600:.2f}"
                f" | {figures[MEMORY].per_hour / (1 << 20):+.1f} | {figures[BLOCKS].per_hour:+,.0f}"
                f" | {descriptors:+.0f} | {figures['threads'].per_hour:+.1f} | {figures['timers'].per_hour:+.1f}"
                f" | {figures[DISK].per_hour / (1 << 20):+.1f} | {most} |"
            )
        return lines

    def problems(self) -> list[str]:
        """What grew by more than is allowed."""
        return [
            f"{name}, node {number}: {slope.what} grows by {slope.per_hour:+,.0f} an hour"
            for (name, number), counts in self.counts.items()
            if len(same := _of_one_process(counts)) >= _LEAST_COUNTS
            for slope in slopes(same)
            if slope.is_too_much
        ]

    def _memory(self) -> str:
        last = ((name, number, counts[-1].census) for (name, number), counts in self.counts.items())
        return ", ".join(
            f"{name} {number}: {census.figures[MEMORY] / (1 << 20):.0f} MB" for name, number, census in last
        )


def slopes(counts: Sequence[Count], allowed: Allowance = ALLOWED) -> list[Slope]:
    """How fast everything grows that one process holds."""
    last = counts[-1].census
    found = []
    for what in last.objects:
        first = counts[0].census.objects.get(what, 0)
        found.append(_slope(what, counts, [count.census.objects for count in counts], allowed.of_type(what, first)))
    for what in last.descriptors:
        values = [count.census.descriptors for count in counts]
        found.append(_slope(what, counts, values, allowed.descriptors)._replace(what=f"descriptors: {what}"))
    figures = [count.census.figures for count in counts]
    return [*found, *(_slope(what, counts, figures, allowed.of(what)) for what in last.figures)]


def _slope(what: str, counts: Sequence[Count], values: Sequence[Mapping[str, int]], allowed: float) -> Slope:
    """Of the line with the least squares."""
    pairs = [(count.at_s, each.get(what, 0)) for count, each in zip(counts, values, strict=True)]
    mean_s = sum(at_s for at_s, _ in pairs) / len(pairs)
    mean = sum(value for _, value in pairs) / len(pairs)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in pairs)
    per_s = sum((at_s - mean_s) * (value - mean) for at_s, value in pairs) / spread if spread else 0.0
    return Slope(what, per_s * 3600, per_s * (pairs[-1][0] - pairs[0][0]), allowed)


def _of_one_process(counts: Sequence[Count]) -> list[Count]:
    """The counts of the process that a node ends with, but for those of the first part of the time."""
    same = [count for count in counts if count.census.process == counts[-1].census.process]
    begins_s = same[0].at_s + _WARM * (same[-1].at_s - same[0].at_s)
    return [count for count in same if count.at_s >= begins_s]
