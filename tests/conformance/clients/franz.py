"""The command: franz-go's own integration tests against one node, Ottla's or Apache Kafka's.

    python -m tests.conformance.clients.franz              # everything: a few minutes
    python -m tests.conformance.clients.franz TestTxnEtl   # what a regular expression names
    python -m tests.conformance.clients.franz --kafka      # what passes on Apache Kafka, noted in franz-expected.txt

The module comes from the Go proxy, its tests are compiled as they are. What they and the node have to say stays in
`build/franz`.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.harness.kafka_jars import cached

from tests.conformance.clients.clusters import running_cluster
from tests.conformance.clients.go_programs import build, module_folder
from tests.conformance.suite.clusters import Subject
from tests.conformance.suite.runner import class_path

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
EXPECTED = Path(__file__).parent / "franz-expected.txt"
"""The tests that pass on Apache Kafka, run in the same way."""
OUTCOME = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+) \(")


def tests_binary() -> Path:
    """franz-go's tests, compiled."""

    def make(folder: Path) -> None:
        build(module_folder(MODULE, VERSION), "./pkg/kgo", folder / "kgo.test", "test", "-c")

    return cached(f"franz-go-{VERSION}", make) / "kgo.test"


def run_tests(address: str, words: Path, pattern: str) -> dict[str, str]:
    """Run the tests; PASS, FAIL or SKIP for each."""
    command = [str(tests_binary()), "-test.v", "-test.timeout=90m", f"-test.run={pattern}"]
    environment = {**os.environ, "KGO_SEEDS": address, "KGO_TEST_RF": "1"}
    outcomes: dict[str, str] = {}
    with words.open("w") as log, words.with_suffix(".clients").open("w") as told:
        # One of them reads the package's sources where it stands.
        package = module_folder(MODULE, VERSION) / "pkg" / "kgo"
        running = subprocess.Popen(
            command, env=environment, cwd=package, stdout=subprocess.PIPE, stderr=told, text=True, errors="replace"
        )
        assert running.stdout is not None
        with running:
            for line in running.stdout:
                log.write(line)
                log.flush()
                if found := OUTCOME.match(line):
                    outcomes[found[2]] = found[1]
                    print(line.rstrip()[4:], flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.clients.franz", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("pattern", nargs="?", default=".", help="a regular expression that names tests")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka, and note what passes there")
    arguments = parser.parse_args()
    subject = Subject.kafka(class_path()) if arguments.kafka else Subject.ottla()
    folder = Path("build/franz").resolve() / ("kafka" if arguments.kafka else "ottla")
    tests_binary()
    # As in the project's own continuous integration: its share groups deliver a record more often than five times.
    with running_cluster(folder, subject, nodes=1, group_share_delivery_count_limit="10") as address:
        outcomes = run_tests(address, folder / "tests.unit.storage.log", arguments.pattern)
        failed = [name for name, outcome in outcomes.items() if outcome == "FAIL"]
        if failed:
            # Many run at once, and some have seconds to succeed in: on a busy machine that is too little.
            print(f"again, by themselves: {', '.join(failed)}", flush=True)
            outcomes |= run_tests(address, folder / "again.log", f"^({'|'.join(failed)})$")
    passed = sorted(name for name, outcome in outcomes.items() if outcome == "PASS")
    if arguments.kafka and arguments.pattern == ".":
        EXPECTED.write_text("".join(f"{name}\n" for name in passed))
    expected = [name for name in EXPECTED.read_text().split() if re.search(arguments.pattern, name)]
    missed = [name for name in expected if name not in passed]
    print(f"{len(passed)} of {len(outcomes)} passed; {len(expected)} on Apache Kafka; {folder}/tests.log has more")
    for name in missed:
        print(f"MISSED  {name}: {outcomes.get(name, 'did not run')}")
    return 1 if missed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
