"""TxnOffsetCommit beside Kafka, versions 0 to 5: offsets that count when a transaction is committed."""

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
from tests.conformance.differential.harness import Both, Side
from tests.conformance.differential.transactional import Writer, wait_for_group_coordinator

_names = itertools.count(1)
VERSIONS = range(6)
ADDS = 5


@pytest.fixture
def group(both: Both) -> str:
    """A group that nobody else uses."""
    name = f"txn-group-{next(_names)}"
    wait_for_group_coordinator(both, name)
    return name


@pytest.fixture
def writer(both: Both, group: str) -> Writer:
    return Writer(both, f"writer-of-{group}").start()


def commit(writer: Writer, group: str, version: int, topic: str, offset: int = 7, **how: Any) -> int:
    """Commit an offset in the transaction; the error code."""
    epoch = how.pop("epoch", None)
    part = TxnOffsetCommitRequestPartition(
        partition_index=how.pop("partition", 0), committed_offset=offset, committed_metadata=how.pop("metadata", "x")
    )

    def request(side: Side) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=writer.id,
            group_id=group,
            producer_id=writer.producer_id(side),
            producer_epoch=writer.epoch if epoch is None else epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **how,
        )

    code: int = writer.both.same(request, version).ottla.topics[0].partitions[0].error_code
    return code


def same_offsets(both: Both, group: str, topic: str) -> None:
    """Both know the same offsets, whether or not those of open transactions matter."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    for stable in (False, True):
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
        both.same(OffsetFetchRequest(groups=groups, require_stable=stable), 8)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_with_their_transaction(
    both: Both, writer: Writer, group: str, version: int, committed: bool
) -> None:
    topic = both.new_topic(partitions=2)
    own = [OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="before")]
    plain = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=own)])
    both.same(plain, 8)
    if version < ADDS:
        assert not writer.add_offsets(3, group)
    assert not commit(writer, group, version, topic)
    assert not commit(writer, group, version, topic, 9)
    same_offsets(both, group, topic)
    assert not writer.end(5 if version == ADDS else 3, commit=committed)
    same_offsets(both, group, topic)
    if version == ADDS:
        assert not commit(writer, group, version, topic, 20, partition=1)
        same_offsets(both, group, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_that_are_refused(both: Both, writer: Writer, group: str, version: int) -> None:
    topic = both.new_topic(partitions=2)
    if version < ADDS:
        assert commit(writer, group, version, topic)  # the group was not added
        assert not writer.add_offsets(3, group)
    assert commit(writer, group, version, topic, epoch=writer.epoch + 1)
    assert not commit(writer, group, version, topic)
    assert commit(writer, group, version, topic, epoch=writer.epoch - 1)
    assert commit(writer, group, version, "nowhere")
    assert commit(writer, group, version, topic, metadata="m" * 5000)
    commit(writer, group, version, topic, -1)
    assert commit(writer, "", version, topic)
    if version >= 3:
        commit(writer, group, version, topic, generation_id=1)
        commit(writer, group, version, topic, member_id="somebody")
        commit(writer, group, version, topic, group_instance_id="somebody")
    same_offsets(both, group, topic)
    assert not writer.end(5 if version == ADDS else 3, commit=True)
    same_offsets(both, group, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_of_producers_that_nobody_knows(both: Both, writer: Writer, group: str, version: int) -> None:
    topic = both.new_topic()
    for side in both.sides:
        side.memory[writer.id] = 99_999
    assert commit(writer, group, version, topic)
    stranger = Writer(both, f"stranger-of-{group}")
    assert commit(stranger, group, version, topic, epoch=0)


def test_two_transactions_commit_offsets_of_one_group(both: Both, writer: Writer, group: str) -> None:
    topic = both.new_topic(partitions=2)
    other = Writer(both, f"other-of-{group}").start()
    steps: list[Callable[[], int]] = [
        lambda: commit(writer, group, ADDS, topic, 5),
        lambda: commit(other, group, ADDS, topic, 6),
        lambda: commit(other, group, ADDS, topic, 7, partition=1),
        lambda: other.end(5, commit=True),
        lambda: writer.end(5, commit=True),
    ]
    for step in steps:
        assert not step()
        same_offsets(both, group, topic)
