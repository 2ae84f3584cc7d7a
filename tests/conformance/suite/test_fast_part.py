"""Kafka's own tests, the quick ones of them: what passes on Apache Kafka passes here.

All of them: `python -m tests.conformance.suite --all`.
"""

import json

import pytest

from tests.conformance.suite.__main__ import EXPECTED, of_class
from tests.conformance.suite.clusters import Subject
from tests.conformance.suite.runner import class_path, full_names, run_classes

QUICK = ("AutoTopicCreationTest", "DescribeFeaturesTest", "DeleteRecordsCommandTest", "ProducerCompressionTest")


@pytest.mark.timeout(600)
def test_what_passes_on_apache_kafka_passes_here() -> None:
    expected: dict[str, list[str]] = json.loads(EXPECTED.read_text())
    results = run_classes(full_names(QUICK), Subject.ottla(class_path()))
    passed = {result.test for result in results if result.failure is None}
    assert {of_class(result) for result in results} == set(QUICK)
    assert {test for name in QUICK for test in expected[name]} - passed == set()
