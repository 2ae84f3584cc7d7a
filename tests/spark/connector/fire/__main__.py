"""Run queries under a given number of failures, and check that every row was written once.

python -m tests.spark.connector.fire --failures 300
python -m tests.spark.connector.fire --failures 100 --seed 7
"""

import argparse
import sys
from pathlib import Path
from random import SystemRandom

from tests.spark.connector.fire.fire import Fire


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.connector.fire",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--failures", type=int, default=300, help="default: %(default)d")
    parser.add_argument("--seed", type=int, help="repeats failures, as far as timing allows")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/fire"), help="for logs and data (default: %(default)s)"
    )
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else SystemRandom().randrange(1 << 20)
    print(f"seed {seed}: {arguments.failures} failures of tasks, drivers, brokers and coordinators", flush=True)
    fire = Fire(arguments.folder.absolute() / str(seed), seed=seed, failures=arguments.failures)
    outcome = fire.run()
    print(outcome.report())
    print(f"history and logs are in {fire.folder}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
