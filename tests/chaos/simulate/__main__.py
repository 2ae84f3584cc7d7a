"""Run simulations with many seeds. A seed that fails always fails in the same way.

python -m tests.chaos.simulate --seeds 0-5000
python -m tests.chaos.simulate --seeds 1949 --scenario quorum
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from logging import CRITICAL, getLogger

from tests.chaos.simulate.catalogue import SCENARIOS


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The iteration order of sets of strings must be the same for the same seed.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", default="0-200", metavar="A-B", help="a range of seeds, or one seed (default: %(default)s)"
    )
    parser.add_argument(
        "--scenario", choices=sorted(SCENARIOS), action="append", help="run only this scenario (may be repeated)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default: %(default)s)")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    scenarios = arguments.scenario or list(SCENARIOS)
    failed = [
        (scenario, seed, reason)
        for scenario in scenarios
        for seed, reason in _run_all(scenario, seeds, jobs=1 if len(seeds) == 1 else arguments.jobs)
    ]
    for scenario, seed, reason in failed:
        command = f"python -m tests.chaos.simulate --scenario {scenario} --seeds {seed}"
        print(f"\n{reason}\n{scenario} fails with seed {seed}. To repeat it: {command}")
    print(f"{len(scenarios) * len(seeds)} runs, {len(failed)} failed")
    return 1 if failed else 0


def _run_all(scenario: str, seeds: range, *, jobs: int) -> list[tuple[int, str]]:
    """Run a scenario with all seeds. Return those that fail, with the reasons."""
    began, failed = time.monotonic(), []
    with ProcessPoolExecutor(jobs, initializer=_silence_logs) as pool:
        results = pool.map(_run, [scenario] * len(seeds), seeds, chunksize=4)
        for done, (seed, reason) in enumerate(results, 1):
            if reason:
                failed.append((seed, reason))
                print(f"{scenario}: seed {seed} fails: {reason.splitlines()[-1]}", flush=True)
            if done % 100 == 0 or done == len(seeds):
                print(f"{scenario}: {done} seeds in {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    return failed


def _silence_logs() -> None:
    """Silence warnings, such as those about torn logs. The scenarios check the errors."""
    getLogger("ottla").propagate = False
    getLogger("asyncio").setLevel(CRITICAL)


def _run(scenario: str, seed: int) -> tuple[int, str]:
    run: Callable[[int], None] = SCENARIOS[scenario]
    try:
        run(seed)
    except Exception:  # noqa: BLE001 (the caller prints it)
        return seed, traceback.format_exc()
    return seed, ""


if __name__ == "__main__":
    sys.exit(main())
