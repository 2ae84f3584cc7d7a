"""Profile an Ottla node while it runs a benchmark case, and show the result as a flame graph and a table.

The case runs once to warm the node up, then again while py-spy samples the node. py-spy reads the memory of another
process; if the system allows that only to root, py-spy says so.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from bench.harness.case import Case, Trial, all_cases
from bench.harness.figures import OTTLA, format_value
from bench.harness.systems import SYSTEMS, running_cluster
from bench.report.flame import flame_graph, table

ROOT = Path(__file__).parents[1]


class NoProfile(Exception):
    """The profile could not be taken. The message says why."""


def main() -> int:
    cases = {name: case for name, case in all_cases().items() if case.nodes}
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", choices=list(cases), metavar="CASE", help="a case that `python -m bench --list` shows")
    parser.add_argument("--scale", type=float, default=0.5, help="factor for the size of the case (default: 0.5)")
    parser.add_argument("--rate", type=int, default=400, help="samples per second (default: 400)")
    parser.add_argument("--native", action="store_true", help="also sample compiled code, which is slower")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="directory for the flame graph"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    options = ["--rate", str(arguments.rate), *(["--native"] if arguments.native else [])]
    try:
        seconds, stacks = profile(cases[arguments.case], arguments.scale, options)
    except NoProfile as error:
        print(f"bench.profiling: {error}", file=sys.stderr)
        return 1
    picture = arguments.out / f"profile-{arguments.case}.svg"
    picture.write_text(flame_graph(stacks, f"{arguments.case}, {format_value(seconds)} s of server CPU"))
    print(f"{table(stacks)}\n{format_value(seconds)} s of server CPU\n{picture}")
    return 0


def profile(case: Case, scale: float, options: list[str]) -> tuple[float, str]:
    """Run a case on a warm node under py-spy. Return the CPU seconds of the node and the sampled stacks."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-profile-"))
    out = folder / "stacks.txt"
    try:
        with running_cluster(
            SYSTEMS[OTTLA], folder / OTTLA, nodes=case.nodes, settings=case.server_settings
        ) as cluster:
            trial = Trial(SYSTEMS[OTTLA], folder, scale, case.sizes[-1] if case.sizes else None, cluster)
            case.work(trial)
            watcher = subprocess.Popen(
                [
                    _find_py_spy(),
                    "record",
                    "--pid",
                    str(cluster.pids[0]),
                    "--output",
                    str(out),
                    "--format",
                    "raw",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                figures = case.work(trial)
            finally:
                watcher.send_signal(signal.SIGINT)
                output, _ = watcher.communicate(timeout=60)
            if not out.exists():
                raise NoProfile(f"py-spy recorded nothing: {output.strip()}")
            return figures.get("server_cpu_s", 0.0), out.read_text()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_py_spy() -> str:
    path = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if path is None:
        raise NoProfile("py-spy is not installed: run `make setup`")
    return path


if __name__ == "__main__":
    sys.exit(main())
