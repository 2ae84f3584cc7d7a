"""`python -m bench.profiling CASE`: where a node spends its time in a case, as a flame graph and as a table.

The node runs the case once to get warm, then again while py-spy looks at it some hundred times a second. py-spy reads
another process's memory: where the system allows that to root only, it says so.
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
from bench.harness.figures import OTTLA, shown
from bench.harness.systems import SYSTEMS, running_cluster
from bench.report.flame import flame_graph, table

ROOT = Path(__file__).parents[1]


class NoProfile(Exception):
    """The profile could not be taken; says why."""


def main() -> int:
    cases = {name: case for name, case in all_cases().items() if case.nodes}
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "case", choices=list(cases), metavar="CASE", help="one of the cases of `python -m bench --list`"
    )
    parser.add_argument("--scale", type=float, default=0.5, help="size relative to what the case names")
    parser.add_argument("--rate", type=int, default=400, help="looks a second")
    parser.add_argument("--native", action="store_true", help="also what compiled code does: slower")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    options = ["--rate", str(arguments.rate), *(["--native"] if arguments.native else [])]
    try:
        seconds, stacks = profile(cases[arguments.case], arguments.scale, options)
    except NoProfile as error:
        print(f"profile: {error}", file=sys.stderr)
        return 1
    picture = arguments.out / f"profile-{arguments.case}.svg"
    picture.write_text(flame_graph(stacks, f"{arguments.case}, {shown(seconds)} s of the server's CPU"))
    print(f"{table(stacks)}\n{shown(seconds)} s of the server's CPU\n{picture}")
    return 0


def profile(case: Case, scale: float, options: list[str]) -> tuple[float, str]:
    """Run a case on a warm node under py-spy: the CPU that the node used, and the stacks that were seen."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-profile-"))
    out = folder / "stacks.txt"
    try:
        with running_cluster(
            SYSTEMS[OTTLA], folder / OTTLA, nodes=case.nodes, settings=case.server_settings
        ) as cluster:
            trial = Trial(SYSTEMS[OTTLA], folder, scale, case.sizes[-1] if case.sizes else None, cluster)
            case.work(trial)
            watcher = subprocess.Popen(
                [_spy(), "record", "--pid", str(cluster.pids[0]), "--output", str(out), "--format", "raw", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                figures = case.work(trial)
            finally:
                watcher.send_signal(signal.SIGINT)
                said, _ = watcher.communicate(timeout=60)
            if not out.exists():
                raise NoProfile(f"py-spy wrote nothing: {said.strip()}")
            return figures.get("server_cpu_s", 0.0), out.read_text()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spy() -> str:
    found = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if found is None:
        raise NoProfile("py-spy is not installed")
    return found


if __name__ == "__main__":
    sys.exit(main())
