"""The command: franz-go's own integration tests against one node, Ottla's or Apache Kafka's.

    python -m tests.clients.franz              # everything: a few minutes
    python -m tests.clients.franz TestTxnEtl   # what a regular expression names
    python -m tests.clients.franz --kafka      # what passes on Apache Kafka, noted in franz-expected.txt

The module comes from the Go proxy, its tests are compiled as they are. What they and the node have to say stays in
`build/franz`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.go_programs import build, module_folder
from tests.interop import kafka_jars
from tests.interop.kafka_jars import cached
from tests.suite.clusters import ProcessCluster, Subject, read_properties, write_properties

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
EXPECTED = Path(__file__).parent / "franz-expected.txt"
"""The tests that pass on Apache Kafka, run in the same way."""
OUTCOME = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+) \(")
WANTED = {
    "brokers": "1",
    "controllers": "1",
    "combined": "true",
    "listener": "PLAINTEXT",
    "security": "PLAINTEXT",
    "release": "4.3-IV0",
    "all.group.share.delivery.count.limit": "10",
}


def tests_binary() -> Path:
    """franz-go's tests, compiled."""

    def make(folder: Path) -> None:
        build(module_folder(MODULE, VERSION), "./pkg/kgo", folder / "kgo.test", "test", "-c")

    return cached(f"franz-go-{VERSION}", make) / "kgo.test"


@contextmanager
def node(subject: Subject, folder: Path) -> Iterator[str]:
    """A node of its own, for as long as the tests run; its address."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_properties(folder / "cluster.properties", WANTED)
    cluster = ProcessCluster(folder, subject)
    try:
        cluster.start()
        yield read_properties(folder / "endpoints.properties")["brokers"]
    finally:
        cluster.stop()


def run_tests(address: str, folder: Path, pattern: str) -> dict[str, str]:
    """Run the tests; PASS, FAIL or SKIP for each."""
    command = [str(tests_binary()), "-test.v", "-test.timeout=90m", f"-test.run={pattern}"]
    environment = {**os.environ, "KGO_SEEDS": address, "KGO_TEST_RF": "1"}
    outcomes: dict[str, str] = {}
    with (folder / "tests.log").open("w") as log, (folder / "clients.log").open("w") as words:
        # One of them reads the package's sources where it stands.
        package = module_folder(MODULE, VERSION) / "pkg" / "kgo"
        running = subprocess.Popen(
            command, env=environment, cwd=package, stdout=subprocess.PIPE, stderr=words, text=True, errors="replace"
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
    parser = argparse.ArgumentParser(prog="python -m tests.clients.franz", description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default=".", help="a regular expression that names tests")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka, and note what passes there")
    arguments = parser.parse_args()
    subject = Subject.kafka(kafka_jars.class_path()) if arguments.kafka else Subject.ottla()
    folder = Path("build/franz").resolve() / ("kafka" if arguments.kafka else "ottla")
    tests_binary()
    with node(subject, folder) as address:
        outcomes = run_tests(address, folder, arguments.pattern)
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
