"""The command: many seeds of the simulations; what fails is named, and is the same each time it is run again.

python -m tests.chaos.simulate --seeds 0-5000
python -m tests.chaos.simulate --seeds 1949 --story quorum
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from logging import CRITICAL, getLogger

from tests.chaos.simulate.catalogue import STORIES


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of names is chance, too, and must be the same for the same seed.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-200", metavar="A-B", help="from A to B, or one (default: %(default)s)")
    parser.add_argument("--story", choices=sorted(STORIES), action="append", help="only this one (may be repeated)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    stories = arguments.story or list(STORIES)
    failed = [
        (story, seed, why)
        for story in stories
        for seed, why in _run_all(story, seeds, jobs=1 if len(seeds) == 1 else arguments.jobs)
    ]
    for story, seed, why in failed:
        print(f"\n{why}\n{story} fails with seed {seed}: python -m tests.chaos.simulate --story {story} --seeds {seed}")
    print(f"{len(stories) * len(seeds)} runs, {len(failed)} failed")
    return 1 if failed else 0


def _run_all(story: str, seeds: range, *, jobs: int) -> list[tuple[int, str]]:
    """The seeds that fail, with their reasons."""
    began, failed = time.monotonic(), []
    with ProcessPoolExecutor(jobs, initializer=_be_quiet) as pool:
        for done, (seed, why) in enumerate(pool.map(_run, [story] * len(seeds), seeds, chunksize=4), 1):
            if why:
                failed.append((seed, why))
                print(f"{story}: seed {seed} fails: {why.splitlines()[-1]}", flush=True)
            if done % 100 == 0 or done == len(seeds):
                print(f"{story}: {done} seeds in {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    return failed


def _be_quiet() -> None:
    """What nodes have to say of torn logs is for nobody here; errors are found by the stories."""
    getLogger("ottla").propagate = False
    getLogger("asyncio").setLevel(CRITICAL)


def _run(story: str, seed: int) -> tuple[int, str]:
    tell: Callable[[int], None] = STORIES[story]
    try:
        tell(seed)
    except Exception:  # noqa: BLE001 (whatever it is, it is told)
        return seed, traceback.format_exc()
    return seed, ""


if __name__ == "__main__":
    sys.exit(main())
