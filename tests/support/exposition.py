"""A parser of Prometheus' text format, stricter than the real ones."""

import math
import re
from typing import NamedTuple

_help = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)").fullmatch
_type = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary)").fullmatch
_line = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.+)\})? (NaN|[+-]Inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)").fullmatch
_label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
Labels = frozenset[tuple[str, str]]


class Metric(NamedTuple):
    """A metric family: its kind, and its values by name and labels."""

    kind: str
    values: dict[tuple[str, Labels], float]


class Exposition:
    """The metrics of a text."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n"), "the last line has no line end"
        self.metrics: dict[str, Metric] = {}
        name = ""
        lines = iter(text.removesuffix("\n").split("\n"))
        for line in lines:
            if help_line := _help(line):
                name = help_line[1]
                kind = _type(next(lines))
                assert kind, f"no type follows {line!r}"
                assert kind[1] == name
                assert name not in self.metrics, f"{name} appears twice"
                self.metrics[name] = Metric(kind[2], {})
            else:
                self._sample(name, line)
        for name, metric in self.metrics.items():
            assert metric.values, f"{name} has no values"
            if metric.kind == "histogram":
                _check_histogram(name, metric)

    def __getitem__(self, text: str) -> float:
        """Return the value of `name{label="x"}`; the labels may be in any order."""
        matched = re.fullmatch(r"(\w+)(?:\{(.*)\})?", text)
        assert matched
        name, labels = matched[1], _labels(matched[2])
        for metric in self.metrics.values():
            if (name, labels) in metric.values:
                return metric.values[name, labels]
        raise KeyError(text)

    def _sample(self, family: str, line: str) -> None:
        matched = _line(line)
        assert matched, f"{line!r} is not a sample"
        metric = self.metrics[family]
        suffix = matched[1].removeprefix(family)
        assert matched[1].startswith(family), f"{line!r} does not belong to {family}"
        assert suffix in _SUFFIXES.get(metric.kind, ("",))
        key = matched[1], _labels(matched[2])
        assert key not in metric.values, f"{line!r} appears twice"
        value = float(matched[3])
        assert metric.kind == "gauge" or suffix == "" or value >= 0
        assert metric.kind != "counter" or (family.endswith("_total") and value >= 0)
        names = {name for name, _ in key[1]}
        assert ("le" in names) == (suffix == "_bucket")
        assert ("quantile" in names) == (metric.kind == "summary" and suffix == "")
        metric.values[key] = value


def _labels(text: str | None) -> Labels:
    if not text:
        return frozenset()
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        matched = _label.match(text, position)
        assert matched, f"{text[position:]!r} is not a label"
        assert matched[1] not in labels
        labels[matched[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), matched[2])
        position = matched.end()
    assert not text.endswith(",")
    return frozenset(labels.items())


def _check_histogram(name: str, metric: Metric) -> None:
    """Check that buckets rise and that the last one equals the count."""
    by_labels: dict[Labels, list[tuple[float, float]]] = {}
    for (line, labels), value in metric.values.items():
        if line.endswith("_bucket"):
            others = frozenset(label for label in labels if label[0] != "le")
            by_labels.setdefault(others, []).append((float(dict(labels)["le"]), value))
    for labels, buckets in by_labels.items():
        assert buckets == sorted(buckets), f"{name} has buckets out of order"
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (math.inf, metric.values[f"{name}_count", labels])
