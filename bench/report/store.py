"""Results as JSON, written and read again: the report can be made anew without measuring anew."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.figures import CaseResult, Sample


@dataclass
class Results:
    """One run of the benchmarks: when, on what, with which versions, and all samples."""

    when: str
    machine: dict[str, str]
    systems: dict[str, str]
    plan: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)


def write(results: Results, path: Path) -> None:
    path.write_text(json.dumps(asdict(results), indent=1) + "\n")


def read(path: Path) -> Results:
    """Raises ValueError for a file that is no such thing."""
    found = json.loads(path.read_text())
    try:
        cases = [
            CaseResult(**{**case, "samples": [Sample(**sample) for sample in case["samples"]]})
            for case in found["cases"]
        ]
        return Results(**{**found, "cases": cases})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no results of a benchmark: {error}") from error


def merged(old: Results, new: Results) -> Results:
    """The new run's cases in place of the old ones of the same name, and the old run's others."""
    fresh = {case.name: case for case in new.cases}
    kept = [fresh.pop(case.name, case) for case in old.cases]
    return Results(new.when, new.machine, new.systems, new.plan, [*kept, *fresh.values()])
