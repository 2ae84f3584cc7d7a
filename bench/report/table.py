"""The summary table: ratios only, one row for each case and size, as Markdown; written into the documentation."""

from collections.abc import Iterable
from pathlib import Path

from bench.harness.figures import OTTLA, CaseResult, Comparison, format_value
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
"""If other work kept more cores busy than this, times and throughput are unreliable."""


class MarkersMissing(Exception):
    """The page does not have the markers that enclose the table."""


def format_table(results: Results) -> str:
    """Return the ratios as Markdown: the median of the warm rounds, with the cold round in brackets."""
    introduction = (
        f"Ottla ÷ {results.systems.get('kafka', 'Kafka')}, {describe_run(results)}. Below 1, Ottla uses less than "
        "Kafka. First the median of the warm rounds, in brackets the cold round on fresh servers; **bold** misses its "
        "goal."
    )
    lines = [
        introduction,
        "",
        f"| case | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for case in results.cases:
        lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in format_rows(case)]
    noise = median_other_cores(results.cases)
    if noise > NOISY_CORES:
        lines += ["", f"(Other work kept {noise:.1f} cores busy during the run: times and throughput are unreliable.)"]
    return "\n".join(lines) + "\n"


def describe_run(results: Results) -> str:
    machine = results.machine
    size = "" if results.plan.get("scale", 1) == 1 else f", at {results.plan['scale']:g} of the sizes named"
    return f"{machine['cores']} cores, {machine['memory']}, Python {machine['python']}, {results.when[:10]}{size}"


def format_rows(case: CaseResult) -> list[tuple[str, list[str]]]:
    """Return the title and cells of each size that has something to compare."""
    rows = []
    for x in case.sizes:
        warm = {c.figure: c for c in case.compare(case.settled_samples(x))}
        cold = {}
        if case.select_samples(cold=False, x=x):
            cold = {c.figure: c for c in case.compare(case.select_samples(cold=True, x=x))}
        cells = [_format_cell(names, warm, cold) for names in COLUMNS.values()]
        if any(cells):
            title = f"{case.group}: {case.title}" + ("" if x is None else f": {x:,} {case.axis}")
            rows.append((title, cells))
    return rows


def _format_cell(names: Iterable[str], warm: dict[str, Comparison], cold: dict[str, Comparison]) -> str:
    for name in names:
        comparison = warm.get(name)
        if comparison is None or comparison.ratio is None:
            continue
        text = f"{format_value(comparison.ratio.median)}×"
        if comparison.misses_goal:
            text = f"**{text}**"
        first = cold.get(name)
        return f"{text} ({format_value(first.ratio.median)}×)" if first and first.ratio else text
    return ""


def median_other_cores(cases: Iterable[CaseResult]) -> float:
    """Return the median number of cores that were busy with neither servers nor clients."""
    values = sorted(s.figures["others_cores"] for case in cases for s in case.samples if "others_cores" in s.figures)
    return values[len(values) // 2] if values else 0.0


def list_misses(results: Results) -> list[str]:
    """Describe each goal that was missed, with the figure."""
    misses = []
    for case in results.cases:
        for x in case.sizes:
            for comparison in case.compare(case.settled_samples(x)):
                if comparison.misses_goal and comparison.ratio is not None:
                    size = "" if x is None else f" at {x:,} {case.axis}"
                    ratio = format_value(comparison.ratio.median)
                    goal = format_value(comparison.goal or 0)
                    misses.append(f"{case.name}{size}: {comparison.figure} {ratio}× (goal {goal}×)")
            misses += _exceeded_limits(case, x)
        misses += _steep_rises(case)
        if OTTLA in case.problems:
            misses.append(f"{case.name}: not measured: {case.problems[OTTLA].splitlines()[0]}")
    return misses


def _exceeded_limits(case: CaseResult, x: int | None) -> list[str]:
    size = "" if x is None else f" at {x:,} {case.axis}"
    return [
        f"{case.name}{size}: {figure} {format_value(value)} (limit {format_value(limit)})"
        for figure, limit in case.limits.items()
        if (value := case.ottla_values(figure).get(x)) is not None and value > limit
    ]


def _steep_rises(case: CaseResult) -> list[str]:
    """Describe the figures that rise too much from the smallest size to the largest."""
    misses = []
    for figure, limit in case.rises.items():
        values = list(case.ottla_values(figure).values())
        if len(values) > 1 and values[0] > 0 and values[-1] / values[0] > limit:
            rise = format_value(values[-1] / values[0])
            misses.append(
                f"{case.name}: {figure} {rise}× from the first size to the last (goal {format_value(limit)}×)"
            )
    return misses


def insert_into_page(table: str, page: Path) -> None:
    """Replace the text between the markers of a page."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersMissing(f"{page} has no lines {BEGIN} and {END} for the table to go between")
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")
