"""Results as a JSON file, so that the report can be written again without measuring."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.figures import CaseResult, Sample


@dataclass
class Results:
    """One run of the benchmarks: time, machine, versions and all samples."""

    when: str
    machine: dict[str, str]
    systems: dict[str, str]
    plan: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)


def write(results: Results, path: Path) -> None:
    path.write_text(json.dumps(asdict(results), indent=1) + "\n")


def read(path: Path) -> Results:
    """Read results. Raise ValueError if the file has other content."""
    content = json.loads(path.read_text())
    try:
        cases = [
            CaseResult(**{**case, "samples": [Sample(**sample) for sample in case["samples"]]})
            for case in content["cases"]
        ]
        return Results(**{**content, "cases": cases})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no benchmark results: {error}") from error


def merge(old: Results, new: Results) -> Results:
    """Return the cases of the old run with those of the new run replaced or added."""
    new_cases = {case.name: case for case in new.cases}
    cases = [new_cases.pop(case.name, case) for case in old.cases]
    return Results(new.when, new.machine, new.systems, new.plan, [*cases, *new_cases.values()])
