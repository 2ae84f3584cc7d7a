"""The table for people in a hurry: one line a case, ratios only, as Markdown; and its place in the documentation."""

from collections.abc import Iterable
from pathlib import Path

from bench.harness.figures import OTTLA, CaseResult, Comparison, shown
from bench.report.store import Results

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
COLUMNS = {
    "server CPU": ("server_cpu_s", "idle_percent"),
    "job's CPU": ("job_cpu_s",),
    "throughput": ("records_per_s",),
    "time": ("time_ms",),
    "p50": ("p50_ms",),
    "p99": ("p99_ms",),
    "memory": ("rss_mb",),
}
NOISY_CORES = 0.15
"""Cores; more than that, and the clock says little."""


class MarkersMissing(Exception):
    """The page has no markers between which the table could go."""


def markdown(results: Results) -> str:
    """Ratios, Ottla over Kafka; the first in a cell is the middle of the warm rounds, in brackets the cold one."""
    words = (
        f"Ottla ÷ {results.systems.get('kafka', 'Kafka')}, {summary(results)}. Below 1 is less than Kafka; "
        "first the median of the warm rounds, in brackets the cold one of fresh servers; **bold** misses its goal."
    )
    lines = [
        words,
        "",
        f"| case | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for case in results.cases:
        lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in rows(case)]
    noise = others(results.cases)
    if noise > NOISY_CORES:
        lines += [
            "",
            f"(Other work kept {noise:.1f} cores of this machine busy meanwhile: the clock's figures are rough.)",
        ]
    return "\n".join(lines) + "\n"


def summary(results: Results) -> str:
    machine = results.machine
    size = "" if results.plan.get("scale", 1) == 1 else f", at {results.plan['scale']:g} of the sizes named"
    return f"{machine['cores']} cores, {machine['memory']}, Python {machine['python']}, {results.when[:10]}{size}"


def rows(case: CaseResult) -> list[tuple[str, list[str]]]:
    """A line a size, each with its cells; none where there is nothing to compare."""
    found = []
    for x in case.sizes:
        warm = {c.figure: c for c in case.compare(case.settled(x))}
        cold = {c.figure: c for c in case.compare(case.phase(cold=True, x=x))} if case.phase(cold=False, x=x) else {}
        cells = [_cell(names, warm, cold) for names in COLUMNS.values()]
        if any(cells):
            title = f"{case.group}: {case.title}" + ("" if x is None else f": {x:,} {case.axis}")
            found.append((title, cells))
    return found


def _cell(names: Iterable[str], warm: dict[str, Comparison], cold: dict[str, Comparison]) -> str:
    for name in names:
        comparison = warm.get(name)
        if comparison is None or comparison.ratio is None:
            continue
        text = f"{shown(comparison.ratio.middle)}×"
        if comparison.misses:
            text = f"**{text}**"
        first = cold.get(name)
        return f"{text} ({shown(first.ratio.middle)}×)" if first and first.ratio else text
    return ""


def others(cases: Iterable[CaseResult]) -> float:
    """Cores that were busy with neither servers nor clients, in the middle of all samples."""
    values = sorted(s.figures["others_cores"] for case in cases for s in case.samples if "others_cores" in s.figures)
    return values[len(values) // 2] if values else 0.0


def misses(results: Results) -> list[str]:
    """Each goal that was not reached, with its figure."""
    found = []
    for case in results.cases:
        for x in case.sizes:
            for each in case.compare(case.settled(x)):
                if each.misses and each.ratio is not None:
                    at = "" if x is None else f" at {x:,} {case.axis}"
                    goal = f"{shown(each.ratio.middle)}× (goal {shown(each.goal or 0)}×)"
                    found.append(f"{case.name}{at}: {each.figure} {goal}")
            found += _too_much(case, x)
        found += _risen(case)
        if OTTLA in case.problems:
            found.append(f"{case.name}: not measured: {case.problems[OTTLA].splitlines()[0]}")
    return found


def _too_much(case: CaseResult, x: int | None) -> list[str]:
    """The figures that are above their limits at a size."""
    at = "" if x is None else f" at {x:,} {case.axis}"
    return [
        f"{case.name}{at}: {figure} {shown(value)} (limit {shown(limit)})"
        for figure, limit in case.limits.items()
        if (value := case.own(figure).get(x)) is not None and value > limit
    ]


def _risen(case: CaseResult) -> list[str]:
    """The figures that rise too much from the smallest size to the largest."""
    found = []
    for figure, most in case.rises.items():
        values = list(case.own(figure).values())
        if len(values) > 1 and values[0] > 0 and values[-1] / values[0] > most:
            rise = f"{shown(values[-1] / values[0])}× from the first size to the last (goal {shown(most)}×)"
            found.append(f"{case.name}: {figure} {rise}")
    return found


def insert_into_page(table: str, page: Path) -> None:
    """Put the table between the markers of a page."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersMissing(f"{page} has no lines {BEGIN} and {END} for the table to go between")
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")
