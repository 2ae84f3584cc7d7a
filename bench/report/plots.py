"""Plots as SVG text: bars of ratios with their spread, and curves on logarithmic axes. No library, no script."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.harness.figures import Spread, format_value

WIDTH, LABEL, LINE = 860, 330, 24
LOW, HIGH = 1 / 16, 4.0
COLOURS = {"ottla": "#1b6e9c", "kafka": "#8a8a8a"}
_HIT, _MISS = "#1b6e9c", "#c0392b"


@dataclass(frozen=True)
class Bar:
    """One ratio with its label and goal."""

    label: str
    ratio: Spread
    goal: float | None = None
    misses_goal: bool = False


def draw_bars(bars: Sequence[Bar]) -> str:
    """Draw horizontal bars that begin at 1 (as much as Kafka) on a logarithmic scale; thin lines span the rounds."""
    height = LINE * len(bars) + 30
    parts = [_open(WIDTH, height)]
    for tick in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4):
        x = _position(tick)
        parts.append(_line(x, 4, x, height - 22, "#333" if tick == 1 else "#ddd"))
        parts.append(_text(x, height - 6, f"{tick:g}×" if tick >= 1 else f"1/{round(1 / tick)}×", "middle"))
    for number, bar in enumerate(bars):
        parts += _draw_bar(bar, 6 + number * LINE)
    return "".join(parts) + "</svg>"


def draw_curves(
    title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, width: int = 410, height: int = 250
) -> str:
    """Draw lines of points on two logarithmic axes; points at zero lie on the lower edge."""
    points = [point for line in lines.values() for point in line]
    xs, ys = [max(x, 1.0) for x, _ in points], [y for _, y in points if y > 0] or [1.0]
    across, up = _scale(min(xs), max(xs), 50, width - 15), _scale(min(ys), max(ys), height - 35, 30)
    lowest = min(ys)
    parts = [_open(width, height), _text(width / 2, 16, title, "middle", bold=True)]
    for x in sorted(set(xs)):
        parts.append(_line(across(x), 30, across(x), height - 35, "#eee"))
        parts.append(_text(across(x), height - 20, f"{x:,.0f}", "middle"))
    parts += [_text(46, up(y) + 4, format_value(y), "end") for y in (lowest, max(ys))]
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS.get(name, "#555")
        placed = [(across(max(x, 1.0)), up(max(y, lowest))) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(60 + 70 * number, height - 4, name, "start", colour=colour))
    return "".join(parts) + "</svg>"


def growth_exponent(line: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope between the last two points: 0 is flat, 1 linear. None if there are too few positive points."""
    positive = [(x, y) for x, y in line if x > 0 and y > 0]
    if len(positive) < 2:
        return None
    (x0, y0), (x1, y1) = positive[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def _draw_bar(bar: Bar, y: float) -> list[str]:
    one, median = _position(1), _position(bar.ratio.median)
    colour = _MISS if bar.misses_goal else _HIT
    left, width = min(one, median), max(abs(median - one), 1)
    parts = [
        _text(LABEL - 8, y + 13, bar.label, "end"),
        f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="12" fill="{colour}" opacity="0.75"/>',
        _line(_position(bar.ratio.minimum), y + 9, _position(bar.ratio.maximum), y + 9, "#000"),
        _text(WIDTH - 4, y + 13, f"{format_value(bar.ratio.median)}×", "end", bold=True),
    ]
    if bar.goal is not None:
        goal = _position(bar.goal)
        parts.append(
            f'<path d="M{goal - 4:.1f} {y} h8 l-4 6 z" fill="#2e7d32"><title>goal {bar.goal:.2g}×</title></path>'
        )
    return parts


def _position(ratio: float) -> float:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LABEL + share * (WIDTH - 60 - LABEL)


def _scale(minimum: float, maximum: float, start: float, end: float) -> "Scale":
    return Scale(math.log(minimum), math.log(maximum) if maximum > minimum else math.log(minimum) + 1, start, end)


@dataclass(frozen=True)
class Scale:
    """Maps a value to a position, logarithmically."""

    minimum: float
    maximum: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (math.log(value) - self.minimum) / (self.maximum - self.minimum) * (self.end - self.start)


def _open(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">'
    )


def _line(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, colour: str = "#222") -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
