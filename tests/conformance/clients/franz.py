"""Run franz-go's own integration tests against a node of Ottla or Apache Kafka.

    python -m tests.conformance.clients.franz              # all tests, in a few minutes
    python -m tests.conformance.clients.franz TestTxnEtl   # tests that match a regular expression
    python -m tests.conformance.clients.franz --kafka      # record the tests that pass on Apache Kafka

The module comes from the Go proxy, and its tests are compiled unmodified. The logs of tests and node stay in
`build/franz`.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.harness.kafka_jars import cached_folder

from tests.conformance.clients.clusters import running_cluster
from tests.conformance.clients.go_programs import build, module_folder
from tests.conformance.suite.clusters import Subject
from tests.conformance.suite.runner import class_path

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
EXPECTED = Path(__file__).parent / "franz-expected.txt"
"""The tests that pass on Apache Kafka in the same setup."""
OUTCOME = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+) \(")


def tests_binary() -> Path:
    """Return the executable of franz-go's tests."""

    def make(folder: Path) -> None:
        build(module_folder(MODULE, VERSION), "./pkg/kgo", folder / "kgo.test", "test", "-c")

    return cached_folder(f"franz-go-{VERSION}", make) / "kgo.test"


def run_tests(address: str, log_path: Path, pattern: str) -> dict[str, str]:
    """Run the tests, and return PASS, FAIL or SKIP for each."""
    command = [str(tests_binary()), "-test.v", "-test.timeout=90m", f"-test.run={pattern}"]
    environment = {**os.environ, "KGO_SEEDS": address, "KGO_TEST_RF": "1"}
    outcomes: dict[str, str] = {}
    with log_path.open("w") as log, log_path.with_suffix(".clients").open("w") as client_log:
        # One test reads the package's sources from the current directory.
        package = module_folder(MODULE, VERSION) / "pkg" / "kgo"
        running = subprocess.Popen(
            command,
            env=environment,
            cwd=package,
            stdout=subprocess.PIPE,
            stderr=client_log,
            text=True,
            errors="replace",
        )
        assert running.stdout is not None
        with running:
            for line in running.stdout:
                log.write(line)
                log.flush()
                if outcome := OUTCOME.match(line):
                    outcomes[outcome[2]] = outcome[1]
                    print(line.rstrip()[4:], flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.clients.franz", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("pattern", nargs="?", default=".", help="a regular expression for the names of tests")
    parser.add_argument("--kafka", action="store_true", help="run against Apache Kafka, and record the tests that pass")
    arguments = parser.parse_args()
    subject = Subject.kafka(class_path()) if arguments.kafka else Subject.ottla()
    folder = Path("build/franz").resolve() / ("kafka" if arguments.kafka else "ottla")
    tests_binary()
    # As in the project's continuous integration, whose share groups deliver a record more than five times.
    with running_cluster(folder, subject, nodes=1, group_share_delivery_count_limit="10") as address:
        outcomes = run_tests(address, folder / "tests.log", arguments.pattern)
        failed = [name for name, outcome in outcomes.items() if outcome == "FAIL"]
        if failed:
            # Many tests run at once, and some fail within seconds on a busy machine.
            print(f"run again, alone: {', '.join(failed)}", flush=True)
            outcomes |= run_tests(address, folder / "again.log", f"^({'|'.join(failed)})$")
    passed = sorted(name for name, outcome in outcomes.items() if outcome == "PASS")
    if arguments.kafka and arguments.pattern == ".":
        EXPECTED.write_text("".join(f"{name}\n" for name in passed))
    expected = [name for name in EXPECTED.read_text().split() if re.search(arguments.pattern, name)]
    missed = [name for name in expected if name not in passed]
    print(f"{len(passed)} of {len(outcomes)} passed; {len(expected)} on Apache Kafka; see {folder}/tests.log")
    for name in missed:
        print(f"MISSED  {name}: {outcomes.get(name, 'did not run')}")
    return 1 if missed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
