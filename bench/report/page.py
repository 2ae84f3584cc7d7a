"""The report: one HTML page with everything in it, plots first, all figures below."""

from collections.abc import Iterable
from html import escape

from bench.harness.figures import FIGURES, KAFKA, OTTLA, CaseResult, Comparison, Spread, shown
from bench.report.plots import Bar, bars, curves, exponent
from bench.report.store import Results
from bench.report.table import NOISY_CORES, misses, others

PLOTTED = ("server_cpu_s", "records_per_s", "time_ms", "p99_ms", "rss_mb")
CURVES = (
    *("server_cpu_s", "time_ms", "p99_ms", "rss_mb", "idle_percent", "records_per_s"),
    *("fence_ms", "fence_cpu_s", "snapshot_ms", "stall_ms", "active_ms"),
)
WORDS = """<p>Ratios are Ottla's figure over Kafka's of the same round; a bar to the left of 1 is less than Kafka. The
thin line spans the rounds, the green mark is the goal, red bars miss it. Servers and clients share the cores.</p>"""
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


def page(results: Results) -> str:
    """The whole page as text."""
    systems, machine = results.systems, results.machine
    title = f"{systems.get(OTTLA, 'Ottla')} beside {systems.get(KAFKA, 'Apache Kafka')}"
    facts = ", ".join([machine["processor"], f"{machine['cores']} cores", machine["memory"], machine["system"]])
    plan = ", ".join(f"{name} {value}" for name, value in results.plan.items())
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p class=note>{escape(facts)}; Python {machine['python']}; {escape(results.when)}; {escape(plan)}</p>",
        WORDS,
    ]
    noise = others(results.cases)
    if noise > NOISY_CORES:
        parts.append(
            f"<p class=miss>Other work kept {noise:.1f} cores busy meanwhile: times and throughput are rough.</p>"
        )
    parts += [_plot(results, figure) for figure in PLOTTED]
    parts += [_curves(case) for case in results.cases if case.axis]
    parts.append("<h2>Goals missed</h2>" + (_list(misses(results)) or "<p>None.</p>"))
    parts.append("<h2>All figures</h2>")
    parts += [_case(case) for case in results.cases]
    return "\n".join(parts) + "</html>\n"


def _plot(results: Results, figure: str) -> str:
    found = [
        Bar(f"{case.name}", each.ratio, each.goal, each.misses)
        for case in results.cases
        if not case.axis
        for each in case.compare(case.settled())
        if each.figure == figure and each.ratio is not None
    ]
    direction = "more is better" if FIGURES[figure].more_is_better else "less is better"
    return f"<h2>{FIGURES[figure].title}, {direction}</h2>{bars(found)}" if found else ""


def _curves(case: CaseResult) -> str:
    parts = [f"<h2>{escape(case.title)}</h2>"]
    steep = []
    for figure in CURVES:
        lines = {
            system: [
                (float(x or 0), each.each[system].middle)
                for x in case.sizes
                for each in case.compare(case.settled(x))
                if each.figure == figure and system in each.each
            ]
            for system in (OTTLA, KAFKA)
        }
        lines = {system: line for system, line in lines.items() if line}
        if not lines:
            continue
        parts.append(curves(f"{FIGURES[figure].title}, {FIGURES[figure].unit}, by {case.axis}", lines))
        rise = exponent(lines.get(OTTLA, []))
        if rise is not None:
            steep.append(f"{FIGURES[figure].title} {rise:+.2f}")
    note = "Ottla's rise between the two largest sizes, as an exponent (0 is flat, 1 linear): "
    return "".join(parts) + f"<p class=note>{note}{escape(', '.join(steep))}</p>"


def _case(case: CaseResult) -> str:
    parts = [f"<h3>{escape(case.name)}</h3><p>{escape(case.title)}</p>"]
    parts += [f"<p class=miss>{system}: {escape(problem[:600])}</p>" for system, problem in case.problems.items()]
    for x in case.sizes:
        for name, samples in (("warm", case.phase(cold=False, x=x)), ("cold", case.phase(cold=True, x=x))):
            if samples:
                at = "" if x is None else f"{x:,} {case.axis}, "
                rounds = len({(s.life, s.turn) for s in samples})
                parts.append(_figures(f"{at}{name}, {rounds} rounds", case.compare(samples)))
    return "".join(parts)


def _figures(caption: str, comparisons: Iterable[Comparison]) -> str:
    head = f"<tr><th>{escape(caption)}<th>Ottla<th>Apache Kafka<th>ratio<th>least – most<th>goal</tr>"
    lines = []
    for each in comparisons:
        figure, ratio = FIGURES[each.figure], each.ratio
        cells = [
            f"{figure.title}, {figure.unit}",
            *(_value(each.each.get(system)) for system in (OTTLA, KAFKA)),
            f"{shown(ratio.middle)}×" if ratio else "",
            f"{shown(ratio.least)} – {shown(ratio.most)}" if ratio else "",
            f"{shown(each.goal)}×" if each.goal else "",
        ]
        mark = " class=miss" if each.misses else ""
        lines.append(f"<tr{mark}>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>")
    return f"<table>{head}{''.join(lines)}</table>"


def _value(spread: Spread | None) -> str:
    return shown(spread.middle) if spread else ""


def _list(items: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}" for item in items) + "</ul>" if items else ""
