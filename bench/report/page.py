"""The report: one HTML page with plots and all figures."""

from collections.abc import Iterable
from html import escape

from bench.harness.figures import FIGURES, KAFKA, OTTLA, CaseResult, Comparison, Spread, format_value
from bench.report.plots import Bar, draw_bars, draw_curves, growth_exponent
from bench.report.store import Results
from bench.report.table import NOISY_CORES, list_misses, median_other_cores

PLOTTED = ("server_cpu_s", "records_per_s", "time_ms", "p99_ms", "rss_mb")
CURVES = (
    *("server_cpu_s", "time_ms", "p99_ms", "rss_mb", "idle_percent", "records_per_s"),
    *("fence_ms", "fence_cpu_s", "snapshot_ms", "stall_ms", "active_ms"),
)
INTRODUCTION = """<p>A ratio is Ottla's figure divided by Kafka's figure of the same round. A bar to the left of 1 means
less than Kafka. The thin line spans the rounds, the green mark is the goal, and red bars miss it. Servers and clients
share the cores.</p>"""
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0 1.6rem }
td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4 }
td:first-child, th:first-child { text-align: left }
.miss { color: #c0392b; font-weight: 600 } .note { color: #666 } svg { max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) {
  svg { background: #fff } body { background: #181818; color: #ddd } td, th { border-color: #333 }
}
"""


def render_page(results: Results) -> str:
    systems, machine = results.systems, results.machine
    title = f"{systems.get(OTTLA, 'Ottla')} compared with {systems.get(KAFKA, 'Apache Kafka')}"
    facts = ", ".join([machine["processor"], f"{machine['cores']} cores", machine["memory"], machine["system"]])
    plan = ", ".join(f"{name} {value}" for name, value in results.plan.items())
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p class=note>{escape(facts)}; Python {machine['python']}; {escape(results.when)}; {escape(plan)}</p>",
        INTRODUCTION,
    ]
    noise = median_other_cores(results.cases)
    if noise > NOISY_CORES:
        parts.append(
            f"<p class=miss>Other work kept {noise:.1f} cores busy during the run: "
            "times and throughput are unreliable.</p>"
        )
    parts += [_plot(results, figure) for figure in PLOTTED]
    parts += [_curves(case) for case in results.cases if case.axis]
    parts.append("<h2>Goals missed</h2>" + (_list(list_misses(results)) or "<p>None.</p>"))
    parts.append("<h2>All figures</h2>")
    parts += [_case(case) for case in results.cases]
    return "\n".join(parts) + "</html>\n"


def _plot(results: Results, figure: str) -> str:
    bars = [
        Bar(case.name, comparison.ratio, comparison.goal, comparison.misses_goal)
        for case in results.cases
        if not case.axis
        for comparison in case.compare(case.settled_samples())
        if comparison.figure == figure and comparison.ratio is not None
    ]
    direction = "more is better" if FIGURES[figure].more_is_better else "less is better"
    return f"<h2>{FIGURES[figure].title}, {direction}</h2>{draw_bars(bars)}" if bars else ""


def _curves(case: CaseResult) -> str:
    parts = [f"<h2>{escape(case.title)}</h2>"]
    exponents = []
    for figure in CURVES:
        lines = {
            system: [
                (float(x or 0), comparison.spreads[system].median)
                for x in case.sizes
                for comparison in case.compare(case.settled_samples(x))
                if comparison.figure == figure and system in comparison.spreads
            ]
            for system in (OTTLA, KAFKA)
        }
        lines = {system: line for system, line in lines.items() if line}
        if not lines:
            continue
        parts.append(draw_curves(f"{FIGURES[figure].title}, {FIGURES[figure].unit}, by {case.axis}", lines))
        rise = growth_exponent(lines.get(OTTLA, []))
        if rise is not None:
            exponents.append(f"{FIGURES[figure].title} {rise:+.2f}")
    note = "Growth of Ottla's figures between the two largest sizes, as an exponent (0 is flat, 1 linear): "
    return "".join(parts) + f"<p class=note>{note}{escape(', '.join(exponents))}</p>"


def _case(case: CaseResult) -> str:
    parts = [f"<h3>{escape(case.name)}</h3><p>{escape(case.title)}</p>"]
    parts += [f"<p class=miss>{system}: {escape(problem[:600])}</p>" for system, problem in case.problems.items()]
    for x in case.sizes:
        for name, samples in (
            ("warm", case.select_samples(cold=False, x=x)),
            ("cold", case.select_samples(cold=True, x=x)),
        ):
            if samples:
                size = "" if x is None else f"{x:,} {case.axis}, "
                rounds = len({(s.life, s.turn) for s in samples})
                parts.append(_figures(f"{size}{name}, rounds: {rounds}", case.compare(samples)))
    return "".join(parts)


def _figures(caption: str, comparisons: Iterable[Comparison]) -> str:
    head = f"<tr><th>{escape(caption)}<th>Ottla<th>Apache Kafka<th>ratio<th>minimum – maximum<th>goal</tr>"
    lines = []
    for comparison in comparisons:
        figure, ratio = FIGURES[comparison.figure], comparison.ratio
        cells = [
            f"{figure.title}, {figure.unit}",
            *(_median(comparison.spreads.get(system)) for system in (OTTLA, KAFKA)),
            f"{format_value(ratio.median)}×" if ratio else "",
            f"{format_value(ratio.minimum)} – {format_value(ratio.maximum)}" if ratio else "",
            f"{format_value(comparison.goal)}×" if comparison.goal else "",
        ]
        style = " class=miss" if comparison.misses_goal else ""
        lines.append(f"<tr{style}>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>")
    return f"<table>{head}{''.join(lines)}</table>"


def _median(spread: Spread | None) -> str:
    return format_value(spread.median) if spread else ""


def _list(items: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}" for item in items) + "</ul>" if items else ""
