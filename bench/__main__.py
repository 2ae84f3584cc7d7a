"""`python -m bench [NAME ...]`: figures, all of them or those named; a name is a case or a group of cases.

Cases run on Ottla and on Apache Kafka in turns, and end up in a report. `codec`, `fuzz`, `log`, `pipeline`, `records`
and `steps` are about Ottla's own parts, and print their figures.
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
from bench.harness.runner import Plan, run_cases
from bench.harness.systems import SYSTEMS
from bench.report import store, table
from bench.report.page import page

DEFAULT_PARTS = ("codec", "pipeline", "records")
PARTS = (*DEFAULT_PARTS, "log", "steps", "fuzz")
"""The last ones take long, or look for what fails, and run when they are named."""
ROOT = Path(__file__).parents[1]
QUICK_SCALE = 0.1
FULL_MINUTES, QUICK_MINUTES = 29.0, 3.8
"""What everything may take, and what the choice may: less than half an hour, and than four minutes."""
TOUCHED_BYTES = 4 << 30
"""More than the files of most cases."""


def main() -> int:
    """Run what was asked for; 0 when all of it could be measured."""
    arguments = _arguments()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the servers too
    cases = all_cases()
    if arguments.list:
        for case in cases.values():
            print(f"{case.name:<24}{case.title}{' (by its name only)' if case.named_only else ''}")
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
    parser.add_argument("--list", action="store_true", help="the cases there are")
    parser.add_argument("--quick", action="store_true", help="a choice of cases at a tenth of their size")
    parser.add_argument("--scale", type=float, help="sizes relative to those that a case names")
    parser.add_argument(
        "--sizes", type=_sizes, default=(), metavar="N,N", help="the sizes of curves, in place of those of the cases"
    )
    parser.add_argument("--lives", type=int, help="how often to start the servers afresh")
    parser.add_argument("--warm-rounds", type=int, help="rounds after the cold one, at most")
    parser.add_argument("--only", choices=list(SYSTEMS), help="one system alone: figures without ratios")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the servers keep their data")
    parser.add_argument("--out", default=str(ROOT / "build" / "bench"), metavar="DIR", help="where the report goes")
    parser.add_argument("--merge", action="store_true", help="keep the other cases of the last results")
    parser.add_argument("--report", action="store_true", help="make the report anew from the last results")
    parser.add_argument("--publish", action="store_true", help="put the table into docs/performance.md")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted({int(size) for size in text.split(",")}))
    if sizes[0] < 1:
        raise ValueError(f"{sizes[0]} is not a size: the least is 1")
    return sizes


def _choose(names: list[str], cases: dict[str, Case], *, quick: bool) -> list[Case] | None:
    """The cases that the names mean; None, and a word about it, where one means nothing."""
    groups = {case.group for case in cases.values()}
    for name in names:
        if name not in {*cases, *groups, *PARTS}:
            known = ", ".join([*PARTS, *sorted(groups), *cases])
            print(f"bench: there is no bench {name!r}; there are {known}", file=sys.stderr)
            return None
    if names:
        return [case for case in cases.values() if case.name in names or case.group in names]
    # The most telling first: on a slow machine the time may be up before the last.
    all_of_them = (case for case in cases.values() if not case.named_only and (case.quick or not quick))
    return sorted(all_of_them, key=lambda case: not case.quick)


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
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:  # the tests' code finds Kafka's jars, or does not
        print(f"bench: {missing}", file=sys.stderr)
        return 1
    last = out / "results.json"
    if arguments.merge and last.exists():
        results = store.merged(store.read(last), results)
    store.write(results, last)
    whole = not arguments.names and not arguments.quick and not arguments.only
    return _report(results, out, publish=arguments.publish or whole)


def _report(results: store.Results, out: Path, *, publish: bool) -> int:
    text = table.markdown(results)
    (out / "table.md").write_text(text)
    (out / "report.html").write_text(page(results))
    print(f"\n{text}\n{out / 'report.html'}")
    if publish:
        table.insert_into_page(text, ROOT / "docs" / "performance.md")
    for miss in table.misses(results):
        print(f"missed  {miss}")
    return 1 if any(case.problems and not _left_out(case.problems) for case in results.cases) else 0


def _left_out(problems: dict[str, str]) -> bool:
    return all(problem.startswith("left out") for problem in problems.values())


def _allow_many_files() -> None:
    """As many open files as may be, for this process and the servers that it starts: thousands of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
