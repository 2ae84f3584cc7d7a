"""The report of the main job: lines on the terminal while it runs, and a page with plots at the end."""

import html
import time
from pathlib import Path
from typing import Any

COLOURS = ("#2f6fb0", "#c2571a", "#3a8f4d", "#8a4fa3", "#b08a1e", "#4a4a4a")
WIDTH, HEIGHT, EDGE = 860, 300, 50


class JobReport:
    """Collects the events of the job, and prints them."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.marks: list[tuple[float, str]] = []
        self.read: dict[str, list[tuple[float, int]]] = {}
        self.lag: dict[str, int] = {}
        self.orders: Any = None
        self.counts: dict[str, tuple[int, int]] = {}
        self.warm_s: float | None = None
        self.runs: list[tuple[float, float]] = []

    def show(self, text: str) -> None:
        print(f"{self._now_s():6.1f} s  {text}", flush=True)

    def mark(self, text: str) -> None:
        """Add a mark to the plots."""
        self.marks.append((self._now_s(), text))
        self.show(f"** {text}")

    def add_event(self, event: dict[str, Any]) -> None:
        """Add an event of the pipeline."""
        now_s, kind = self._now_s(), event["event"]
        if kind == "progress" and event["rows"]:
            flow = self.read.setdefault(event["flow"], [(now_s, 0)])
            flow.append((now_s, flow[-1][1] + event["rows"]))
            unmet = sum(counts["rows"] for counts in event.get("unmet", {}).values())
            rejected = f", {unmet:,} do not meet an expectation" if unmet else ""
            self.show(f"{event['flow']}: {event['rows']:,} rows{rejected}")
        elif kind == "flow" and event["state"] in ("running", "failed"):
            self.show(f"{event['flow']}: {event['state']}")
        elif kind == "lag":
            self.lag[event["flow"]] = event["lag"]
            self.show(f"{event['flow']}: lag {event['lag']}")
        elif kind == "run finished":
            self.runs.append((now_s, event["seconds"]))
            self.show(f"run {event['outcome']} after {event['seconds']:g} s")

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


def write_page(report: JobReport, path: Path) -> Path:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{count:,}</td><td>{wanted:,}</td>"
        f"<td>{'✓' if count == wanted else '✗'}</td></tr>"
        for name, (count, wanted) in report.counts.items()
    )
    marks = "".join(f"<li>{at_s:.1f} s: {html.escape(text)}</li>" for at_s, text in report.marks)
    warm = "" if report.warm_s is None else f"<p>The warm run took {report.warm_s:.1f} s, from command to command.</p>"
    path.write_text(
        "<!doctype html><meta charset='utf-8'><title>The main job</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em}"
        "td,th{padding:.2em 1em .2em 0;text-align:right}td:first-child,th:first-child{text-align:left}</style>"
        "<h1>The main job</h1>"
        f"<p>{report.orders.sent:,} orders through a cluster of three nodes and a pipeline on Spark.</p>"
        f"<h2>Rows read by each flow</h2>{_lines(report)}<ul>{marks}</ul>{warm}"
        "<h2>Counts</h2>"
        f"<table><tr><th></th><th>actual</th><th>expected</th><th></th></tr>{rows}</table>{_bars(report)}"
    )
    return path


def _lines(report: JobReport) -> str:
    """Plot rows over time, with a line for each flow and vertical lines for the failures."""
    points = [point for flow in report.read.values() for point in flow]
    last_s = max([at_s for at_s, _ in points] + [at_s for at_s, _ in report.marks] + [1.0])
    highest = max([rows for _, rows in points] + [1])

    def place(at_s: float, rows: int) -> tuple[float, float]:
        return EDGE + at_s / last_s * (WIDTH - 2 * EDGE), HEIGHT - EDGE - rows / highest * (HEIGHT - 2 * EDGE)

    parts = [
        _text(EDGE, HEIGHT - 15, "0 s"),
        _text(WIDTH - EDGE, HEIGHT - 15, f"{last_s:.0f} s"),
        _text(5, EDGE, f"{highest:,}"),
    ]
    for at_s, text in report.marks:
        x, _ = place(at_s, 0)
        parts.append(
            f"<line x1='{x:.0f}' x2='{x:.0f}' y1='{EDGE}' y2='{HEIGHT - EDGE}' stroke='#999' stroke-dasharray='4'>"
        )
        parts.append(f"<title>{html.escape(text)}</title></line>")
    for number, (flow, steps) in enumerate(report.read.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*step) for step in steps))
        parts.append(f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts.append(_text(EDGE + 8, EDGE + 16 * number, flow, colour))
    return _svg(parts, HEIGHT)


def _bars(report: JobReport) -> str:
    counts = {name: count for name, (count, _) in report.counts.items() if name != "lag"}
    highest = max([*counts.values(), 1])
    parts = []
    for number, (name, count) in enumerate(counts.items()):
        y, length = 10 + 26 * number, count / highest * (WIDTH - 330)
        parts.append(
            f"<rect x='170' y='{y}' width='{length:.0f}' height='18' fill='{COLOURS[number % len(COLOURS)]}'/>"
        )
        parts += [_text(0, y + 14, name), _text(178 + length, y + 14, f"{count:,}")]
    return _svg(parts, 20 + 26 * len(counts))


def _svg(parts: list[str], height: int) -> str:
    return f"<svg viewBox='0 0 {WIDTH} {height}' width='100%' font-size='13'>{''.join(parts)}</svg>"


def _text(x: float, y: float, text: str, colour: str = "#333") -> str:
    return f"<text x='{x:.0f}' y='{y:.0f}' fill='{colour}'>{html.escape(text)}</text>"
