"""The command: run classes of Kafka's tests, and say what became of them, here and on Apache Kafka."""

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.suite.clusters import ClusterFailed, Subject
from tests.conformance.suite.runner import Result, class_path, cluster_tests, full_names, run_classes

EXPECTED = Path(__file__).parent / "expected.json"
"""The tests of each class that pass on Apache Kafka, run in the same way."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.suite", description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="with or without its package")
    parser.add_argument("--all", action="store_true", help="every class of which something is expected")
    parser.add_argument("--every", action="store_true", help="every class of the jars that asks for a cluster")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka, and note what passes there")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the classes' methods only those it finds")
    parser.add_argument("--per-test", type=int, default=120, metavar="S", help="the longest that one test may take")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to leave reports and the logs of nodes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # so that no node is left behind
    expected: dict[str, list[str]] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    results: list[Result] = []
    try:
        known = cluster_tests() if arguments.every else expected
        classes = sorted(known) if arguments.every or arguments.all else arguments.classes
        if not classes:
            parser.error("name a class, or give --all")
        subject = (Subject.kafka if arguments.kafka else Subject.ottla)(class_path())
        for name in full_names(classes):
            found = run_classes(
                [name], subject, per_test_s=arguments.per_test, only=arguments.only, keep=arguments.keep
            )
            if arguments.kafka:
                note(expected, name.rpartition(".")[2], found)
            results += found
    except ClusterFailed as error:
        print(error, file=sys.stderr)
        return 2
    return report(results, expected)


def note(expected: dict[str, list[str]], name: str, results: list[Result]) -> None:
    """Write down what passes on Apache Kafka; what did not run this time stays as it was."""
    run = {result.test for result in results}
    passed = {result.test for result in results if result.failure is None}
    expected[name] = sorted({*expected.get(name, ())} - run | passed)
    EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


def report(results: list[Result], expected: dict[str, list[str]]) -> int:
    """Print what failed, and a line for each class; whether everything passed that should."""
    passed, run = Counter[str](), Counter(of_class(result) for result in results)
    missed = 0
    for result in results:
        should = result.test in expected.get(of_class(result), [])
        if result.failure is None:
            passed[of_class(result)] += 1
        else:
            missed += should
            print(f"{'MISSED' if should else 'failed'}  {result.test}: {result.failure.splitlines()[0][:200]}")
    for name in sorted(run):
        print(f"{name}: {passed[name]} of {run[name]} passed; {len(expected.get(name, []))} on Apache Kafka")
    return 1 if missed or not results else 0


def of_class(result: Result) -> str:
    return result.test.partition(".")[0]


if __name__ == "__main__":
    sys.exit(main())
