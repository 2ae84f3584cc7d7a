"""Share groups (KIP-932) behave as Kafka's: members, sessions, acquisitions, acknowledgements, states and offsets."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ottla.protocol.errors import NONE, UnknownServerError, UnknownTopicOrPartition
from ottla.protocol.messages.rpc import delete_share_group_state as deleting
from ottla.protocol.messages.rpc import initialize_share_group_state as initializing
from ottla.protocol.messages.rpc import read_share_group_state as reading
from ottla.protocol.messages.rpc import read_share_group_state_summary as summarizing
from ottla.protocol.messages.rpc import write_share_group_state as writing
from ottla.protocol.messages.rpc.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.rpc.share_fetch import ShareFetchRequest
from ottla.protocol.messages.rpc.share_group_describe import ShareGroupDescribeRequest
from tests.conformance.differential.consumer_groups import compare_member_order, configure, new_topic
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, NodePair, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import UNKNOWN_ID, batch
from tests.conformance.differential.share_groups import Acknowledged, ShareGroupMembers

numbers = count(1)
ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
STRICT = 1


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture
def members(both: NodePair) -> ShareGroupMembers:
    group = f"share-{next(numbers)}"
    configure(both, group, share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    return ShareGroupMembers(both, group)


def test_members_join_read_and_leave(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    members.join("a", topic)
    members.compare_group()
    members.send_heartbeat("b", 0, subscribed_topic_names=[topic], rack_id="r1")
    members.compare_group()
    members.send_heartbeat("a", members.epochs["a"])
    members.send_heartbeat("a", members.epochs["a"])
    members.compare_group()
    listed = both.ask(ListGroupsRequest(types_filter=["share"]), 5)
    for answer in listed:
        answer.groups = [entry for entry in answer.groups if entry.group_id == members.group]
    assert not both.differences(listed, 5)
    members.send_heartbeat("b", -1)
    members.send_heartbeat("b", 3)
    members.send_heartbeat("a", members.epochs["a"])
    members.compare_group()
    members.send_heartbeat("a", -1)
    members.compare_group()
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    members.compare_group()


def test_members_are_described_in_the_order_of_kafkas_hash_table(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    for number in range(6):
        members.join(f"member-{number}", topic)
    assert len(compare_member_order(both, ShareGroupDescribeRequest(group_ids=[members.group]), 1)) == 6


def test_malformed_heartbeats_are_refused_with_the_same_messages(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    members.send_heartbeat("", 0, subscribed_topic_names=[topic])
    members.send_heartbeat("m" * 37, 0, subscribed_topic_names=[topic])
    members.send_heartbeat("a", 0, subscribed_topic_names=[topic], group_id="")
    members.send_heartbeat("a", 0, subscribed_topic_names=[topic], rack_id="")
    members.send_heartbeat("a", 0)
    members.send_heartbeat("a", 0, subscribed_topic_names=[])
    members.send_heartbeat("a", -2)
    members.send_heartbeat("a", -1)
    members.send_heartbeat("a", 1)
    members.join("a", topic)
    members.send_heartbeat("a", members.epochs["a"] + 1)
    members.send_heartbeat("a", 1)
    members.send_heartbeat("nobody", 1)
    members.send_heartbeat("nobody", -1)
    both.expect_same(ShareGroupDescribeRequest(group_ids=["", "nowhere", members.group, members.group]), 1)


def test_requests_of_other_protocols_to_a_share_group_get_the_same_answers(
    both: NodePair, members: ShareGroupMembers
) -> None:
    topic = new_topic(both)
    members.join("a", topic)
    group = members.group
    both.expect_same(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="b",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        ),
        1,
        messages=Messages.EXACTLY,
    )
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    both.expect_same(join, 9)
    both.expect_same(DescribeGroupsRequest(groups=[group]), 6, messages=Messages.EXACTLY)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequestTopic(name=topic, partitions=[part])
    both.expect_same(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[commit]), 9)
    both.expect_same(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 9)
    both.expect_same(DeleteGroupsRequest(groups_names=[group]), 2)
    classic = f"{group}-classic"
    both.expect_same(OffsetCommitRequest(group_id=classic, generation_id_or_member_epoch=-1, topics=[commit]), 9)
    ShareGroupMembers(both, classic).send_heartbeat("a", 0, subscribed_topic_names=[topic])


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_acknowledged_and_redelivered(
    both: NodePair, members: ShareGroupMembers, version: int
) -> None:
    topic = new_topic(both)
    both.produce(topic, batch(5), batch(3), batch(2))
    members.join("a", topic)
    members.fetch("a", topic, version=version)
    members.acknowledge("a", topic, (0, 4, [ACCEPT]), version=version)
    members.acknowledge("a", topic, (5, 9, [RELEASE, REJECT, GAP, ACCEPT, RELEASE]), version=version)
    members.offsets()
    members.fetch("a", topic, version=version)
    members.fetch("a", version=version, max_wait_ms=50)
    members.acknowledge("a", topic, (5, 5, [RELEASE]), (9, 9, [ACCEPT]), version=version)
    members.fetch("a", topic, acks=((0, 0, [ACCEPT]),), version=version)
    members.fetch("a", topic, acks=((5, 5, [ACCEPT]),), version=version, max_wait_ms=50)
    members.offsets()
    both.produce(topic, batch(4))
    members.fetch("a", version=version)
    members.fetch("a", topic, acks=((10, 13, [RELEASE]),), version=version)
    members.fetch("a", topic, epoch=-1, acks=((10, 11, [ACCEPT]),), version=version)
    members.offsets()
    members.sessions.clear()
    members.fetch("a", topic, version=version)


def test_the_number_of_fetched_records_is_limited_the_same_way(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    for size in (3, 4, 5, 6):
        both.produce(topic, batch(size))
    members.join("a", topic)
    members.fetch("a", topic, max_records=2)
    members.fetch("a", max_records=4, batch_size=2)
    members.fetch("a", max_records=4, batch_size=1, share_acquire_mode=STRICT)
    members.fetch("a", max_records=100, batch_size=1, share_acquire_mode=STRICT)
    members.fetch("a", topic, acks=((0, 2, [RELEASE]), (3, 6, [RELEASE])), max_records=2, share_acquire_mode=STRICT)
    members.fetch("a", max_records=3)
    members.fetch("a", max_records=0)
    members.fetch("a", max_bytes=0)
    members.fetch("a", max_records=100, max_wait_ms=50)


def test_a_record_is_delivered_up_to_the_delivery_limit(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    configure(both, members.group, share_delivery_count_limit="3")
    both.produce(topic, batch(8))
    members.join("a", topic)
    answers = members.fetch("a", topic)
    for _ in range(40):
        acquired = [
            run for response in answers.ottla.responses for part in response.partitions for run in part.acquired_records
        ]
        if not acquired:
            break
        acks = tuple((run.first_offset, run.last_offset, [RELEASE]) for run in acquired)
        answers = members.fetch("a", topic, acks=acks, max_wait_ms=50)
    else:
        raise AssertionError("the record is delivered forever")
    members.offsets()


def test_acquisition_locks_are_renewed(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    both.produce(topic, batch(4))
    members.join("a", topic)
    members.fetch("a", topic)
    renewal: dict[str, Any] = {"is_renew_ack": True, "max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    members.fetch("a", topic, acks=((0, 1, [RENEW]),), **renewal)
    members.fetch("a", topic, acks=((0, 1, [RENEW]),), **{**renewal, "max_bytes": 7, "max_wait_ms": 1})
    members.acknowledge("a", topic, (0, 1, [RENEW]), is_renew_ack=True)
    members.acknowledge("a", topic, (0, 1, [RENEW]))
    members.acknowledge("a", topic, (0, 1, [RENEW]), version=1)
    configure(both, members.group, share_renew_acknowledge_enable="false")
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:  # each node applies it at its own time
        try:
            answers = members.acknowledge("a", topic, (0, 1, [RENEW]), is_renew_ack=True)
            if answers.ottla.responses[0].partitions[0].error_code:
                break
        except AssertionError:
            members.sessions["a"] += 1
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_invalid_sessions_and_acknowledgements_are_refused(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    both.produce(topic, batch(6))
    members.join("a", topic)
    for epoch in (-1, 1):
        members.fetch("a", topic, epoch=epoch)
        members.acknowledge("a", topic, (0, 0, [ACCEPT]), epoch=epoch)
    members.acknowledge("a", topic, (0, 0, [ACCEPT]), epoch=0)
    members.fetch("a", topic, epoch=0, acks=((0, 0, [ACCEPT]),))
    members.fetch("", topic, epoch=0)
    members.fetch("m" * 37, topic, epoch=0)
    both.expect_same(ShareFetchRequest(group_id=None, member_id="a"), 2)
    members.fetch("a", topic, max_records=3)
    members.fetch("a", topic, epoch=7)
    members.acknowledge("a", topic, (0, 0, [ACCEPT]), epoch=7)
    wrong: list[list[Acknowledged]] = [
        [(3, 2, [ACCEPT])],
        [(0, 1, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 1, [5])],
        [(0, 1, [-1])],
        [(4, 5, [ACCEPT])],
        [(0, 99, [ACCEPT])],
        [(50, 99, [ACCEPT])],
    ]
    for acks in wrong:
        members.acknowledge("a", topic, *acks)
    members.acknowledge("a", topic, (0, 0, [ACCEPT]), partition=1)
    members.acknowledge("a", "nowhere", (0, 0, [ACCEPT]))
    members.acknowledge("a", topic)
    members.acknowledge("a", topic, (0, 0, [ACCEPT]))
    members.acknowledge("a", topic, (0, 0, [ACCEPT]))
    with both.other_connections() as other:
        thief = ShareGroupMembers(other, members.group)
        thief.fetch("b", topic, max_wait_ms=50, max_records=1)
        thief.acknowledge("b", topic, (1, 1, [ACCEPT]))
        thief.fetch("b", topic, acks=((2, 3, [ACCEPT]),), max_wait_ms=50)


def test_a_disconnect_releases_acquired_records(both: NodePair, members: ShareGroupMembers) -> None:
    topic = new_topic(both)
    both.produce(topic, batch(4))
    members.join("a", topic)
    with both.other_connections() as other:
        first = ShareGroupMembers(other, members.group)
        first.fetch("gone", topic)
    time.sleep(1)  # each node notices it at its own time
    answers = members.fetch("a", topic, max_wait_ms=5000)
    assert answers.ottla.responses[0].partitions[0].acquired_records[0].delivery_count == 2


def test_share_group_states_are_kept_the_same_way(both: NodePair) -> None:
    topic = new_topic(both, partitions=2)
    group = f"states-{next(numbers)}"
    wait_for_share_coordinator(both, topic)

    def expect_same(make: Callable[[Side], Any], version: int = 0) -> None:
        both.expect_same(make, version, messages=Messages.EXACTLY)

    expect_same(lambda side: read(side, group, topic, 0, 1))
    expect_same(lambda side: write(side, group, topic, 0, 1, 1, 0))
    expect_same(lambda side: summarize(side, group, topic, 0), 1)
    expect_same(lambda side: initialize(side, group, topic, 0, 2, 10))
    expect_same(lambda side: initialize(side, group, topic, 1, 2, -1))
    expect_same(lambda side: initialize(side, group, topic, 0, 1, 10))
    expect_same(lambda side: initialize(side, group, topic, 2, 2, 10))
    expect_same(lambda side: initialize(side, group, topic, -1, 2, 10))
    expect_same(lambda side: initialize(side, group, "nowhere", 0, 2, 10))
    expect_same(lambda side: initialize(side, "", topic, 0, 2, 10))
    for version in (0, 1):
        expect_same(lambda side: summarize(side, group, topic, 0, 1, 2), version)
    expect_same(lambda side: read(side, group, topic, 0, 5))
    expect_same(lambda side: read(side, group, topic, 0, 4))
    expect_same(lambda side: write(side, group, topic, 0, 2, 4, 10))
    expect_same(lambda side: write(side, group, topic, 0, 1, 5, 10))
    expect_same(lambda side: write(side, group, topic, 0, 2, 5, 10, (10, 14, 2, 1), (15, 19, 0, 1)))
    expect_same(lambda side: write(side, group, topic, 0, 2, 5, 12, (16, 17, 0, 2), complete=3), 1)
    expect_same(lambda side: write(side, group, topic, 0, 2, 5, -1, (17, 25, 4, 1)))
    expect_same(lambda side: read(side, group, topic, 0, 5))
    expect_same(lambda side: read(side, group, topic, 0, -1))
    expect_same(lambda side: summarize(side, group, topic, 0, 1), 1)
    expect_same(lambda side: delete(side, group, topic, 0, 1))
    expect_same(lambda side: delete(side, group, topic, 0))
    expect_same(lambda side: delete(side, group, topic, 7))
    expect_same(lambda side: read(side, group, topic, 0, 5))
    expect_same(lambda side: reading.ReadShareGroupStateRequest(group_id=group))
    expect_same(lambda side: deleting.DeleteShareGroupStateRequest(group_id=group))


def test_offsets_are_described_set_and_deleted(both: NodePair, members: ShareGroupMembers) -> None:
    topic, other = new_topic(both, partitions=2), new_topic(both)
    group = members.group
    both.produce(topic, batch(10))

    def alter(*topics: tuple[str, int, int], name: str = group) -> None:
        entries = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic_name,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)],
            )
            for topic_name, number, start in topics
        ]
        both.expect_same(AlterShareGroupOffsetsRequest(group_id=name, topics=entries), 0, messages=Messages.LOOSELY)

    def delete_offsets(*topics: str, name: str = group) -> None:
        entries = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
        both.expect_same(DeleteShareGroupOffsetsRequest(group_id=name, topics=entries), 0, messages=Messages.EXACTLY)

    members.offsets()
    delete_offsets(topic)
    alter((topic, 0, 3), ("nowhere", 0, 0))
    members.compare_group()
    for version in (0, 1):
        members.offsets(version=version)
        members.offsets(topic, "nowhere", partitions=(0, 1), version=version)
    alter((topic, 5, 1))
    delete_offsets("nowhere", other)
    members.join("a", topic)
    alter((topic, 0, 1))
    delete_offsets(topic)
    members.fetch("a", topic)
    members.acknowledge("a", topic, (3, 9, [ACCEPT]))
    members.offsets()
    members.fetch("a", topic, epoch=-1)
    members.send_heartbeat("a", -1)
    delete_offsets(topic)
    members.offsets()
    delete_offsets(topic)
    delete_offsets(topic, name="")
    alter((topic, 0, 1), name="")
    both.expect_same(DeleteGroupsRequest(groups_names=[group, "nowhere"]), 2)
    members.offsets()


def test_a_deleted_topic_is_removed_from_the_group(both: NodePair, members: ShareGroupMembers) -> None:
    topic, stays = new_topic(both), new_topic(both)
    both.produce(topic, batch(4))
    members.join("a", topic, stays)
    members.fetch("a", topic)
    both.delete_topic(topic)
    # Kafka 4.3.1 fails all partitions of a session if one was deleted; Ottla serves the others.
    request = ShareFetchRequest(
        group_id=members.group, member_id="a", share_session_epoch=1, max_wait_ms=50, max_records=1, batch_size=1
    )
    answers = both.ask(request, 2)
    assert (answers.kafka.error_code, answers.ottla.error_code) == (UnknownServerError.code, NONE)
    (result,) = answers.ottla.responses
    assert result.partitions[0].error_code == UnknownTopicOrPartition.code
    members.acknowledge("a", topic, (0, 3, [ACCEPT]))
    members.send_heartbeat("a", -1)
    # Kafka 4.3.1 may never answer this while it removes the topic, and it recovers slowly.
    (deleted,) = both.ottla.ask(DeleteGroupsRequest(groups_names=[members.group]), 2).results
    assert not deleted.error_code


# -- requests between brokers --


def wait_for_share_coordinator(both: NodePair, topic: str) -> None:
    """Wait until both nodes have their share coordinator, which a first member makes them create."""
    members = ShareGroupMembers(both, f"wants-states-{next(numbers)}")
    configure(both, members.group, share_assignment_interval_ms="0")
    members.join("a", topic)
    members.send_heartbeat("a", -1)


def initialize(side: Side, group: str, topic: str, number: int, epoch: int, start: int) -> Any:
    part = initializing.PartitionData(partition=number, state_epoch=epoch, start_offset=start)
    topic_data = initializing.InitializeStateData(topic_id=_id(side, topic), partitions=[part])
    return initializing.InitializeShareGroupStateRequest(group_id=group, topics=[topic_data])


def read(side: Side, group: str, topic: str, number: int, leader_epoch: int) -> Any:
    part = reading.PartitionData(partition=number, leader_epoch=leader_epoch)
    topic_data = reading.ReadStateData(topic_id=_id(side, topic), partitions=[part])
    return reading.ReadShareGroupStateRequest(group_id=group, topics=[topic_data])


def write(
    side: Side,
    group: str,
    topic: str,
    number: int,
    epoch: int,
    leader_epoch: int,
    start: int,
    *batches: tuple[int, int, int, int],
    complete: int = -1,
) -> Any:
    part = writing.PartitionData(
        partition=number,
        state_epoch=epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=[
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=times)
            for first, last, state, times in batches
        ],
    )
    topic_data = writing.WriteStateData(topic_id=_id(side, topic), partitions=[part])
    return writing.WriteShareGroupStateRequest(group_id=group, topics=[topic_data])


def delete(side: Side, group: str, topic: str, *numbers: int) -> Any:
    parts = [deleting.PartitionData(partition=number) for number in numbers]
    topic_data = deleting.DeleteStateData(topic_id=_id(side, topic), partitions=parts)
    return deleting.DeleteShareGroupStateRequest(group_id=group, topics=[topic_data])


def summarize(side: Side, group: str, topic: str, *numbers: int) -> Any:
    parts = [summarizing.PartitionData(partition=number) for number in numbers]
    topic_data = summarizing.ReadStateSummaryData(topic_id=_id(side, topic), partitions=parts)
    return summarizing.ReadShareGroupStateSummaryRequest(group_id=group, topics=[topic_data])


def _id(side: Side, topic: str) -> bytes:
    return UNKNOWN_ID if topic == "nowhere" else side.id_of(topic)
