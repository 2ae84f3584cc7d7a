"""The fast classes of Kafka's own tests: tests that pass on Apache Kafka pass on Ottla.

`python -m tests.conformance.suite --all` runs all classes.
"""

import json

import pytest

from tests.conformance.suite.__main__ import EXPECTED, class_of
from tests.conformance.suite.clusters import Subject
from tests.conformance.suite.runner import class_path, full_names, run_classes

QUICK = ("AutoTopicCreationTest", "DescribeFeaturesTest", "DeleteRecordsCommandTest", "ProducerCompressionTest")


@pytest.mark.timeout(600)
def test_kafkas_fast_tests_pass() -> None:
    expected: dict[str, list[str]] = json.loads(EXPECTED.read_text())
    results = run_classes(full_names(QUICK), Subject.ottla(class_path()))
    passed = {result.test for result in results if result.failure is None}
    assert {class_of(result) for result in results} == set(QUICK)
    assert {test for name in QUICK for test in expected[name]} - passed == set()
