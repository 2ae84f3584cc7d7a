"""Spark's errors are summarized for users."""

import pytest

from ottla.spark.pipelines.failures import summarize_error

STREAM = """[STREAM_FAILED] Query [id = 8f, runId = 1a] terminated with exception: [PYTHON_STREAMING_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 190, in main
    func(reader)
  File "/site-packages/ottla/spark/connector/cluster.py", line 3, in x
    raise UnknownTopicOrPartition(Why: not)
ottla.protocol.errors.partitions.UnknownTopicOrPartition: topic 'missing': there is no such topic
 SQLSTATE: 38000 SQLSTATE: XXKST
    at org.apache.spark.sql.x
"""


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (STREAM, "topic 'missing': there is no such topic"),
        (
            "[USER_RAISED_EXCEPTION] expectation 'cheap' is not met by the row {\"a\":1} SQLSTATE: P0001\n\tat java",
            "expectation 'cheap' is not met by the row {\"a\":1}",
        ),
        (
            "x\nTraceback (most recent call last):\n  File\nZeroDivisionError: division by zero\n",
            "ZeroDivisionError: division by zero",
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01;",
            "The table or view `x` cannot be found.",
        ),
        (
            "[STREAM_FAILED] Query [id = 7a, runId = df] terminated with exception: Race in batch 0 SQLSTATE: XX1",
            "Race in batch 0",
        ),
        ("\n\tat org.apache.spark.Foo\njava.lang.Error\nit broke", "it broke"),
    ],
)
def test_an_error_is_reduced_to_its_cause(text: str, summary: str) -> None:
    assert summarize_error(text) == summary
