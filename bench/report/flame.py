"""Sampled stacks as a flame graph and as a table.

The stacks are lines as py-spy writes them: `outer (file.py:1);inner (file.py:2) COUNT`. Idle pool threads are omitted:
sampling wakes them, so they would seem busy.
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
    """A function as called from one place: the number of its samples, and the functions that it called."""

    name: str
    count: int = 0
    inner: dict[str, "Frame"] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((frame.depth for frame in self.inner.values()), default=0)


def parse_stacks(text: str) -> list[tuple[list[str], int]]:
    """Return each stack as functions, outermost first, and its number of samples."""
    stacks = []
    for line in text.splitlines():
        names, _, count = line.rpartition(" ")
        frames = names.split(";")
        if frames[-1].startswith(_WAITING):
            continue
        stacks.append(([_without_line(frame) for frame in frames], int(count)))
    return stacks


def table(text: str) -> str:
    """Return each function's share of the time, alone and including its callees, most expensive first."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for functions, count in parse_stacks(text):
        own[functions[-1]] += count
        for function in set(functions):
            total[function] += count
    samples = own.total()
    rows = [
        f"{count / samples:7.1%} {total[function] / samples:7.1%}  {function}"
        for function, count in own.most_common(ROWS)
    ]
    return "\n".join([f"{'own':>7} {'total':>7}  function", *rows])


def flame_graph(text: str, title: str) -> str:
    """Draw the stacks as SVG: outermost functions on top, widths in proportion to time; hover for the figures."""
    root = Frame("all")
    for functions, count in parse_stacks(text):
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
    title = f"{frame.name}: {frame.count / max(total, 1):.1%}"
    label = frame.name[: int(width / 6.7)] if width > 30 else ""
    parts.append(
        f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 1}" '
        f'fill="{colour}"/><text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text></g>'
    )
    for inner in sorted(frame.inner.values(), key=lambda frame: frame.name):
        _draw(inner, x, y + LINE, scale, total, parts)
        x += inner.count * scale


def _without_line(frame: str) -> str:
    """Remove the line number from `name (path/file.py:12)`."""
    name, _, location = frame.partition(" (")
    return f"{name} ({location.rpartition(':')[0] or location.rstrip(')')})" if location else name
