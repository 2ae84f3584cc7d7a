"""Sampled stacks as a flame graph, and as a table.

Stacks are lines as py-spy writes them: `outer (file.py:1);inner (file.py:2) COUNT`. Pool threads that wait for work are
left out: to look at a process is to wake them, and they would seem busy.
"""

from collections import Counter
from dataclasses import dataclass, field
from html import escape

WIDTH, LINE, TOP = 1400, 17, 40
NARROWEST = 0.8
ROWS = 30
_WAITING = "_worker (concurrent/futures/thread.py"


@dataclass
class Frame:
    """One function as called from one place: how often it was seen there, and what it called."""

    name: str
    count: int = 0
    inner: dict[str, "Frame"] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((frame.depth for frame in self.inner.values()), default=0)


def stacks(text: str) -> list[tuple[list[str], int]]:
    """Each stack as functions from the outermost on, with how often it was seen."""
    found = []
    for line in text.splitlines():
        names, _, count = line.rpartition(" ")
        frames = names.split(";")
        if frames[-1].startswith(_WAITING):
            continue
        found.append(([_function(frame) for frame in frames], int(count)))
    return found


def table(text: str) -> str:
    """Each function's share of the time, alone and with what it calls; the most expensive first."""
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for functions, count in stacks(text):
        alone[functions[-1]] += count
        for function in set(functions):
            within[function] += count
    total = alone.total()
    rows = [
        f"{count / total:7.1%} {within[function] / total:7.1%}  {function}"
        for function, count in alone.most_common(ROWS)
    ]
    return "\n".join([f"{'alone':>7} {'within':>7}  function", *rows])


def flame_graph(text: str, title: str) -> str:
    """The stacks as SVG: the outermost functions on top, as wide as the time that they took; hover for the figures."""
    root = Frame("all")
    for functions, count in stacks(text):
        frame = root
        frame.count += count
        for function in functions:
            frame = frame.inner.setdefault(function, Frame(function))
            frame.count += count
    height = TOP + LINE * root.depth + 10
    size = f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="22" font-size="15">{escape(title)}, {root.count} samples</text>',
    ]
    _draw(root, 0.0, TOP, WIDTH / max(root.count, 1), root.count, parts)
    return "\n".join(parts) + "\n</svg>\n"


def _draw(frame: Frame, x: float, y: float, scale: float, total: int, parts: list[str]) -> None:
    width = frame.count * scale
    if width < NARROWEST:
        return
    hue = 200 if "ottla/" in frame.name else 40 if frame.name.startswith("run (<") else 0
    colour = f"hsl({hue}, 55%, {72 + len(frame.name) % 12}%)"
    words = f"{frame.name}: {frame.count / max(total, 1):.1%}"
    shown = frame.name[: int(width / 6.7)] if width > 30 else ""
    parts.append(
        f'<g><title>{escape(words)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 1}" '
        f'fill="{colour}"/><text x="{x + 2:.1f}" y="{y + 12}">{escape(shown)}</text></g>'
    )
    for inner in sorted(frame.inner.values(), key=lambda each: each.name):
        _draw(inner, x, y + LINE, scale, total, parts)
        x += inner.count * scale


def _function(frame: str) -> str:
    """`name (path/file.py:12)` without the line."""
    name, _, place = frame.partition(" (")
    return f"{name} ({place.rpartition(':')[0] or place.rstrip(')')})" if place else name
