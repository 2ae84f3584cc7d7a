"""A strict reader of Prometheus' text format: it refuses whatever a real one might, and more."""

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
    """A family as it was read: its kind, and values by name and labels."""

    kind: str
    values: dict[tuple[str, Labels], float]


class Exposition:
    """Everything that a text told."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n"), "the last line must end too"
        self.metrics: dict[str, Metric] = {}
        name = ""
        lines = iter(text.removesuffix("\n").split("\n"))
        for line in lines:
            if found := _help(line):
                name = found[1]
                kind = _type(next(lines))
                assert kind, f"no type follows {line!r}"
                assert kind[1] == name
                assert name not in self.metrics, f"{name} comes twice"
                self.metrics[name] = Metric(kind[2], {})
            else:
                self._sample(name, line)
        for name, metric in self.metrics.items():
            assert metric.values, f"{name} has no values"
            if metric.kind == "histogram":
                _check_histogram(name, metric)

    def __getitem__(self, text: str) -> float:
        """The value of `name{label="x"}`; labels in any order."""
        found = re.fullmatch(r"(\w+)(?:\{(.*)\})?", text)
        assert found
        name, labels = found[1], _labels(found[2])
        for metric in self.metrics.values():
            if (name, labels) in metric.values:
                return metric.values[name, labels]
        raise KeyError(text)

    def _sample(self, family: str, line: str) -> None:
        found = _line(line)
        assert found, f"{line!r} is no sample"
        metric = self.metrics[family]
        suffix = found[1].removeprefix(family)
        assert found[1].startswith(family), f"{line!r} is not of {family}"
        assert suffix in _SUFFIXES.get(metric.kind, ("",))
        key = found[1], _labels(found[2])
        assert key not in metric.values, f"{line!r} comes twice"
        value = float(found[3])
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
    at = 0
    while at < len(text):
        found = _label.match(text, at)
        assert found, f"{text[at:]!r} is no label"
        assert found[1] not in labels
        labels[found[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), found[2])
        at = found.end()
    assert not text.endswith(",")
    return frozenset(labels.items())


def _check_histogram(name: str, metric: Metric) -> None:
    """Buckets rise, and the last is the count."""
    by_labels: dict[Labels, list[tuple[float, float]]] = {}
    for (line, labels), value in metric.values.items():
        if line.endswith("_bucket"):
            others = frozenset(each for each in labels if each[0] != "le")
            by_labels.setdefault(others, []).append((float(dict(labels)["le"]), value))
    for labels, buckets in by_labels.items():
        assert buckets == sorted(buckets), f"{name} has buckets out of order"
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (math.inf, metric.values[f"{name}_count", labels])
