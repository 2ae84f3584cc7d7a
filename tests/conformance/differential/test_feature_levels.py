"""Clusters with older feature levels answer clients as Kafka's."""

import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.differential.harness import NodePair, running_node_pair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.test_transactions import expect_same_log
from tests.conformance.differential.transactional import CONCURRENT, WAIT_S, TransactionalProducer
from tests.support.ottla_node import OttlaNode

FEATURE = "transaction.version"
GROUPS = "group.version"
UPGRADE = 1
UNSAFE_DOWNGRADE = 3


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    """Run two nodes for this module: the features of the shared nodes stay unchanged."""
    with running_node_pair(tmp_path_factory.mktemp("versions")) as nodes:
        yield nodes


@pytest.fixture(scope="module", params=[1, 0])
def both(nodes: tuple[NodePair, OttlaNode], request: pytest.FixtureRequest) -> NodePair:
    both, _ = nodes
    set_level(both, FEATURE, request.param)
    return both


def set_level(both: NodePair, feature: str, level: int) -> None:
    """Raise or lower a feature level, and wait until the brokers know it."""
    for kind in (UPGRADE, UNSAFE_DOWNGRADE):  # tests run in any order, so one of the two is refused
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        both.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    deadline = time.monotonic() + WAIT_S
    while True:
        finalized = [
            {entry.name: entry.max_version_level for entry in answer.finalized_features}
            for answer in both.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        ]
        if all(levels.get(feature, 0) == level for levels in finalized):
            return
        assert time.monotonic() < deadline, finalized
        time.sleep(0.05)


def test_transactions_at_older_levels_get_the_same_answers(both: NodePair) -> None:
    topic = both.new_topic()
    producer = TransactionalProducer(both, f"producer-{time.monotonic_ns()}").start()
    for commit in (True, False):
        assert producer.send(11, topic)
        assert not producer.add(3, (topic, 0))
        assert not producer.send(11, topic)
        assert not producer.end(4, commit=commit)
        assert not producer.end(4, commit=commit)
    assert not producer.add(3, (topic, 0))
    assert producer.init() == CONCURRENT
    producer.settle()
    assert producer.init(expect=True)
    assert not producer.init()
    expect_same_log(both, topic)


def test_newer_producers_at_older_levels_get_the_same_answers(both: NodePair) -> None:
    topic = both.new_topic()
    producer = TransactionalProducer(both, f"producer-{time.monotonic_ns()}").start()
    if producer.send(12, topic):
        return  # version 0 cannot store this state, and Kafka's producer hangs
    producer.end(5, commit=True)
    producer.end(5, commit=True)
    producer.end(5, commit=False)
    assert not producer.add(3, (topic, 0))
    producer.end(5, commit=False)
    producer.end(4, commit=False)
    expect_same_log(both, topic)


def test_a_late_transaction_at_an_older_level_is_aborted(both: NodePair) -> None:
    topic = both.new_topic()
    producer = TransactionalProducer(both, f"producer-{time.monotonic_ns()}").start(timeout_ms=100)
    assert not producer.add(3, (topic, 0))
    assert not producer.send(11, topic)
    assert producer.wait_for(lambda state: state == "CompleteAbort")
    assert producer.send(11, topic)
    assert producer.end(4, commit=True)
    expect_same_log(both, topic)


@pytest.mark.parametrize("version", [0, 1])
def test_a_cluster_without_consumer_groups_refuses_them(nodes: tuple[NodePair, OttlaNode], version: int) -> None:
    both, _ = nodes
    set_level(both, GROUPS, 0)
    try:
        heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
        both.expect_same(heartbeat, version, messages=Messages.EXACTLY)
        both.expect_same(ConsumerGroupDescribeRequest(group_ids=["g", ""]), version, messages=Messages.EXACTLY)
    finally:
        set_level(both, GROUPS, 1)
