"""TxnOffsetCommit, versions 0 to 5: offsets take effect with the commit of their transaction, as in Kafka."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.rpc.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.transactional import TransactionalProducer, wait_for_group_coordinator

_names = itertools.count(1)
VERSIONS = range(6)
ADDS = 5


@pytest.fixture
def group(both: NodePair) -> str:
    """Return a group that only this test uses."""
    name = f"txn-group-{next(_names)}"
    wait_for_group_coordinator(both, name)
    return name


@pytest.fixture
def producer(both: NodePair, group: str) -> TransactionalProducer:
    return TransactionalProducer(both, f"producer-of-{group}").start()


def commit(
    producer: TransactionalProducer, group: str, version: int, topic: str, offset: int = 7, **fields: Any
) -> int:
    """Commit an offset in the transaction, and return the error code."""
    epoch = fields.pop("epoch", None)
    part = TxnOffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0),
        committed_offset=offset,
        committed_metadata=fields.pop("metadata", "x"),
    )

    def request(side: Side) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=producer.id,
            group_id=group,
            producer_id=producer.producer_id(side),
            producer_epoch=producer.epoch if epoch is None else epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **fields,
        )

    code: int = producer.both.expect_same(request, version).ottla.topics[0].partitions[0].error_code
    return code


def expect_same_offsets(both: NodePair, group: str, topic: str) -> None:
    """Check that both nodes return the same offsets, with and without `require_stable`."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    for stable in (False, True):
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
        both.expect_same(OffsetFetchRequest(groups=groups, require_stable=stable), 8)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_take_effect_with_their_transaction(
    both: NodePair, producer: TransactionalProducer, group: str, version: int, committed: bool
) -> None:
    topic = both.new_topic(partitions=2)
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="before")]
    plain = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    both.expect_same(plain, 8)
    if version < ADDS:
        assert not producer.add_offsets(3, group)
    assert not commit(producer, group, version, topic)
    assert not commit(producer, group, version, topic, 9)
    expect_same_offsets(both, group, topic)
    assert not producer.end(5 if version == ADDS else 3, commit=committed)
    expect_same_offsets(both, group, topic)
    if version == ADDS:
        assert not commit(producer, group, version, topic, 20, partition=1)
        expect_same_offsets(both, group, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_invalid_commits_are_refused(both: NodePair, producer: TransactionalProducer, group: str, version: int) -> None:
    topic = both.new_topic(partitions=2)
    if version < ADDS:
        assert commit(producer, group, version, topic)  # the group was not added
        assert not producer.add_offsets(3, group)
    assert commit(producer, group, version, topic, epoch=producer.epoch + 1)
    assert not commit(producer, group, version, topic)
    assert commit(producer, group, version, topic, epoch=producer.epoch - 1)
    assert commit(producer, group, version, "nowhere")
    assert commit(producer, group, version, topic, metadata="m" * 5000)
    commit(producer, group, version, topic, -1)
    assert commit(producer, "", version, topic)
    if version >= 3:
        commit(producer, group, version, topic, generation_id=1)
        commit(producer, group, version, topic, member_id="somebody")
        commit(producer, group, version, topic, group_instance_id="somebody")
    expect_same_offsets(both, group, topic)
    assert not producer.end(5 if version == ADDS else 3, commit=True)
    expect_same_offsets(both, group, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_of_unknown_producers_are_refused(
    both: NodePair, producer: TransactionalProducer, group: str, version: int
) -> None:
    topic = both.new_topic()
    for side in both.sides:
        side.memory[producer.id] = 99_999
    assert commit(producer, group, version, topic)
    stranger = TransactionalProducer(both, f"stranger-of-{group}")
    assert commit(stranger, group, version, topic, epoch=0)


def test_two_transactions_commit_offsets_of_the_same_group(
    both: NodePair, producer: TransactionalProducer, group: str
) -> None:
    topic = both.new_topic(partitions=2)
    other = TransactionalProducer(both, f"other-of-{group}").start()
    steps: list[Callable[[], int]] = [
        lambda: commit(producer, group, ADDS, topic, 5),
        lambda: commit(other, group, ADDS, topic, 6),
        lambda: commit(other, group, ADDS, topic, 7, partition=1),
        lambda: other.end(5, commit=True),
        lambda: producer.end(5, commit=True),
    ]
    for step in steps:
        assert not step()
        expect_same_offsets(both, group, topic)
