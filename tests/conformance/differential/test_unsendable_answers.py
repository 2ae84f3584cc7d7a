"""Answers that cannot be encoded, and a single worker: each request has the same outcome on both nodes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import UnknownServerError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.conformance.differential.harness import (
    ANSWER_TIMEOUT_S,
    NodePair,
    decode_response,
    frame_of,
    running_node_pair,
)
from tests.conformance.differential.requests import batch, produce
from tests.support.ottla_node import OttlaNode

BROKER = 4


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    """Run both nodes with one worker."""
    folder: Path = tmp_path_factory.mktemp("narrow")
    with running_node_pair(folder, {"num.io.threads": "1"}) as nodes:
        yield nodes


def test_an_answer_with_an_overlong_text_becomes_an_error(narrow: tuple[NodePair, OttlaNode]) -> None:
    """Up to v3 a text has at most 32,767 bytes; the error message about a name of almost that length has more."""
    both, node = narrow
    since = node.log_path.stat().st_size
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="x" * 32_760, configuration_keys=None)
    answers = both.expect_same(DescribeConfigsRequest(resources=[resource]), 1, timeout_s=5)
    assert answers.ottla.results[0].error_code == UnknownServerError.code
    both.expect_same(ApiVersionsRequest(), 0, ignoring=["api_keys"])
    assert "DescribeConfigs v1 has no answer that can be sent" in node.logged_errors(since)


def test_one_worker_answers_requests_behind_a_waiting_fetch(narrow: tuple[NodePair, OttlaNode]) -> None:
    both, node = narrow
    since = node.log_path.stat().st_size
    topic = both.new_topic()
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=parts)]
    )
    for side in both.sides:
        side.send(frame_of(request, 11, 70_001, "c"), "PLAINTEXT")
        side.send(frame_of(ApiVersionsRequest(), 0, 70_002, "c"), "PLAINTEXT")
    time.sleep(0.3)
    with both.other_connections() as other:
        other.expect_same(produce(9, (topic, 0, batch())), 9)
    for side in both.sides:
        fetched = side.require_answer(side.receive("PLAINTEXT", ANSWER_TIMEOUT_S))
        assert decode_response(ApiKey.FETCH, 11, fetched)[1].responses[0].partitions[0].high_watermark == 1, side.name
        versions = side.require_answer(side.receive("PLAINTEXT", ANSWER_TIMEOUT_S))
        assert decode_response(ApiKey.API_VERSIONS, 0, versions)[1].error_code == 0, side.name
    with both.other_connections() as new:
        new.expect_same(ApiVersionsRequest(), 0, ignoring=["api_keys"])
    assert not node.logged_errors(since)
