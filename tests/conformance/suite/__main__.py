"""Run classes of Kafka's tests, and report their results beside those on Apache Kafka."""

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.suite.clusters import ClusterFailed, Subject
from tests.conformance.suite.runner import Result, class_path, cluster_tests, full_names, run_classes

EXPECTED = Path(__file__).parent / "expected.json"
"""The tests of each class that pass on Apache Kafka in the same setup."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.suite", description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="with or without its package")
    parser.add_argument("--all", action="store_true", help="every class with tests expected to pass")
    parser.add_argument("--every", action="store_true", help="every class in the jars that uses a cluster")
    parser.add_argument("--kafka", action="store_true", help="run against Apache Kafka, and record the tests that pass")
    parser.add_argument("--only", default="", metavar="REGEX", help="run only the methods that match")
    parser.add_argument("--per-test", type=int, default=120, metavar="S", help="time limit of a test, in seconds")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for reports and the logs of nodes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated by a signal"))  # so that the nodes are stopped
    expected: dict[str, list[str]] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    results: list[Result] = []
    try:
        available = cluster_tests() if arguments.every else expected
        classes = sorted(available) if arguments.every or arguments.all else arguments.classes
        if not classes:
            parser.error("name a class, or give --all")
        subject = (Subject.kafka if arguments.kafka else Subject.ottla)(class_path())
        for name in full_names(classes):
            class_results = run_classes(
                [name], subject, per_test_s=arguments.per_test, only=arguments.only, keep=arguments.keep
            )
            if arguments.kafka:
                record_expected(expected, name.rpartition(".")[2], class_results)
            results += class_results
    except ClusterFailed as error:
        print(error, file=sys.stderr)
        return 2
    return report(results, expected)


def record_expected(expected: dict[str, list[str]], name: str, results: list[Result]) -> None:
    """Record the tests that pass on Apache Kafka, and keep the records of tests that did not run."""
    run = {result.test for result in results}
    passed = {result.test for result in results if result.failure is None}
    expected[name] = sorted({*expected.get(name, ())} - run | passed)
    EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


def report(results: list[Result], expected: dict[str, list[str]]) -> int:
    """Print failed tests and a line per class, and return the exit code: 0 if all expected tests passed."""
    passed, run = Counter[str](), Counter(class_of(result) for result in results)
    missed = 0
    for result in results:
        is_expected = result.test in expected.get(class_of(result), [])
        if result.failure is None:
            passed[class_of(result)] += 1
        else:
            missed += is_expected
            print(f"{'MISSED' if is_expected else 'failed'}  {result.test}: {result.failure.splitlines()[0][:200]}")
    for name in sorted(run):
        print(f"{name}: {passed[name]} of {run[name]} passed; {len(expected.get(name, []))} on Apache Kafka")
    return 1 if missed or not results else 0


def class_of(result: Result) -> str:
    return result.test.partition(".")[0]


if __name__ == "__main__":
    sys.exit(main())
