"""Run clients and faults for a time, then check that no acknowledged record was lost.

With --life, run a workload without faults and check that the resource usage of nodes does not grow.

python -m tests.chaos.soak --minutes 30
python -m tests.chaos.soak --minutes 5 --topology apart --seed 7
python -m tests.chaos.soak --life --minutes 30
"""

import argparse
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from tests.chaos.life.report import LongLife
from tests.chaos.soak.soak import TOPOLOGIES, Soak


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="duration in minutes (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="seed of the faults, to repeat a run as far as timing allows")
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="combined", help="roles of the nodes")
    parser.add_argument("--no-java", action="store_true", help="use only librdkafka clients")
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="directory for histories and logs")
    parser.add_argument(
        "--life", action="store_true", help="no faults: check that objects, memory and files of nodes do not grow"
    )
    arguments = parser.parse_args()
    if arguments.life:
        return 1 if LongLife(arguments.folder.absolute() / "life", arguments.minutes * 60).run() else 0
    seed = arguments.seed if arguments.seed is not None else SystemRandom().randrange(1 << 20)
    print(f"seed {seed}: {arguments.minutes:g} minutes of faults on three nodes, {arguments.topology}", flush=True)
    folder = arguments.folder.absolute() / str(seed)
    soak = Soak(
        folder,
        seed=seed,
        seconds=arguments.minutes * 60,
        topology=arguments.topology,
        with_java=not arguments.no_java,
    )
    try:
        outcome = soak.run()
    except pytest.skip.Exception as skipped:
        print(skipped, file=sys.stderr)
        return 2
    print(f"history and logs are in {folder}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
