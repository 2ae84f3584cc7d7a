"""Run benchmark cases on Ottla and on Apache Kafka in turns, and write a report.

A name is a case or a group of cases; without names, all cases run. `codec`, `fuzz`, `log`, `pipeline`, `records` and
`steps` are micro-benchmarks of Ottla's own parts, and print their figures.
"""

import argparse
import datetime
import resource
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from bench.harness import measure
from bench.harness.case import Case, all_cases
from bench.harness.figures import KAFKA, OTTLA
from bench.harness.runner import LEFT_OUT, Plan, run_cases
from bench.harness.systems import SYSTEMS
from bench.report import store, table
from bench.report.page import render_page

DEFAULT_PARTS = ("codec", "pipeline", "records")
PARTS = (*DEFAULT_PARTS, "log", "steps", "fuzz")
"""All micro-benchmarks. Those that are not in `DEFAULT_PARTS` take long or search for bugs, and run only by name."""
ROOT = Path(__file__).parents[1]
QUICK_SCALE = 0.1
FULL_MINUTES, QUICK_MINUTES = 29.0, 3.8
"""The time limits of a full run and of a quick run."""
TOUCHED_BYTES = 4 << 30
"""More than the size of the files of most cases."""


def main() -> int:
    """Run the chosen cases. Return 0 if all of them could be measured."""
    arguments = _arguments()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # `finally` blocks stop the servers
    cases = all_cases()
    if arguments.list:
        for case in cases.values():
            print(f"{case.name:<28}{case.title}{' (runs only by name)' if case.named_only else ''}")
        return 0
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    if arguments.report:
        return _report(store.read(out / "results.json"), out, publish=arguments.publish)
    chosen = _choose(arguments.names, cases, quick=arguments.quick)
    if chosen is None:
        return 2
    for name in arguments.names or (() if arguments.quick else DEFAULT_PARTS):
        if name in PARTS:
            print(f"== {name}")
            import_module(f"bench.micro.{name}").run()
    return _run(chosen, arguments, out, began) if chosen else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases, groups of cases, or {', '.join(PARTS)}")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--quick", action="store_true", help="run a selection of cases at a tenth of their size")
    parser.add_argument("--scale", type=float, help="factor for the sizes of all cases (default: 1)")
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=(),
        metavar="N,N",
        help="sizes at which to measure curves, instead of those of the cases",
    )
    parser.add_argument("--lives", type=int, help="how many times to start fresh servers for a case")
    parser.add_argument("--warm-rounds", type=int, help="maximum number of rounds after the cold one")
    parser.add_argument("--only", choices=list(SYSTEMS), help="measure one system alone: figures without ratios")
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory for the servers' data")
    parser.add_argument("--out", default=str(ROOT / "build" / "bench"), metavar="DIR", help="directory for the report")
    parser.add_argument("--merge", action="store_true", help="keep the results of other cases from the last run")
    parser.add_argument(
        "--report", action="store_true", help="write the report again from the last results, without measuring"
    )
    parser.add_argument("--publish", action="store_true", help="write the table into docs/performance.md")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted({int(size) for size in text.split(",")}))
    if sizes[0] < 1:
        raise ValueError(f"invalid size {sizes[0]}: must be at least 1")
    return sizes


def _choose(names: list[str], cases: dict[str, Case], *, quick: bool) -> list[Case] | None:
    """Return the cases with these names or in these groups. Print an error and return None if a name is unknown."""
    groups = {case.group for case in cases.values()}
    for name in names:
        if name not in {*cases, *groups, *PARTS}:
            choices = ", ".join([*PARTS, *sorted(groups), *cases])
            print(f"bench: unknown name {name!r}; choose from {choices}", file=sys.stderr)
            return None
    if names:
        return [case for case in cases.values() if case.name in names or case.group in names]
    # The quick cases say most, so they run first: on a slow machine the time may be up before the last case.
    candidates = (case for case in cases.values() if not case.named_only and (case.quick or not quick))
    return sorted(candidates, key=lambda case: not case.quick)


def _run(chosen: list[Case], arguments: argparse.Namespace, out: Path, began: float) -> int:
    _allow_many_files()
    measure.touch_memory(TOUCHED_BYTES)
    systems = (arguments.only,) if arguments.only else (OTTLA, KAFKA)
    scale = arguments.scale or (QUICK_SCALE if arguments.quick else 1.0)
    limit = QUICK_MINUTES if arguments.quick else FULL_MINUTES
    plan = Plan(
        scale,
        arguments.quick,
        arguments.lives,
        arguments.warm_rounds,
        systems,
        arguments.sizes,
        arguments.data,
        None if arguments.names else limit - (time.monotonic() - began) / 60,
    )
    try:
        titles = {name: SYSTEMS[name].title() for name in systems}
        if KAFKA not in titles:
            titles[KAFKA] = "Apache Kafka"
        results = store.Results(
            when=datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
            machine=measure.machine(),
            systems=titles,
            plan={"scale": scale, "quick": arguments.quick},
            cases=run_cases(chosen, plan),
        )
    except (pytest.skip.Exception, pytest.fail.Exception) as error:  # `kafka_jars` reports missing jars like this
        print(f"bench: {error}", file=sys.stderr)
        return 1
    path = out / "results.json"
    if arguments.merge and path.exists():
        results = store.merge(store.read(path), results)
    store.write(results, path)
    is_full_run = not arguments.names and not arguments.quick and not arguments.only
    return _report(results, out, publish=arguments.publish or is_full_run)


def _report(results: store.Results, out: Path, *, publish: bool) -> int:
    text = table.format_table(results)
    (out / "table.md").write_text(text)
    (out / "report.html").write_text(render_page(results))
    print(f"\n{text}\n{out / 'report.html'}")
    if publish:
        table.insert_into_page(text, ROOT / "docs" / "performance.md")
    for missed_goal in table.list_misses(results):
        print(f"missed  {missed_goal}")
    return 1 if any(case.problems and not _were_left_out(case.problems) for case in results.cases) else 0


def _were_left_out(problems: dict[str, str]) -> bool:
    return all(problem.startswith(LEFT_OUT) for problem in problems.values())


def _allow_many_files() -> None:
    """Raise the limit of open files, for this process and the servers that it starts: cases open 5,000 connections."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


if __name__ == "__main__":
    sys.exit(main())
