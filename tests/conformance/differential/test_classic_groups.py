"""Classic groups behave as Kafka's: whole lives of groups in every version, and refused requests."""

from itertools import count
from typing import Any

import pytest

from ottla.coordinators.groups.behaviour import GroupsBehaviour
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.declare import schema_of
from ottla.storage.state_machine.entries import Stored, entries_of
from tests.conformance.differential.groups import Member, encode_subscription, member, wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.requests import Part, fetch

numbers = count(1)


def versions_of(key: ApiKey) -> range:
    return range(BY_KEY[key].oldest, BY_KEY[key].latest_stable + 1)


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture
def group() -> str:
    return f"classic-{next(numbers)}"


@pytest.fixture(scope="module")
def topic(two_nodes: tuple[NodePair, object]) -> str:
    return two_nodes[0].new_topic(partitions=2)


def compare_group(both: NodePair, group: str) -> None:
    """Check that both nodes describe, list and fetch the offsets of a group alike."""
    for version in versions_of(ApiKey.DESCRIBE_GROUPS):
        both.expect_same(DescribeGroupsRequest(groups=[group]), version)
    # Groups of other types belong to other tests, and may be changing their state.
    both.expect_same(ListGroupsRequest(types_filter=["classic"]), 5)
    both.expect_same(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 8)


def stable_pair(a: Member, b: Member) -> None:
    """Bring two members into a generation: `a` leads, both are synced."""
    a.join()
    a.expect_same(a.sync_request({a: b"all"}), 5)
    b.send_join()
    a.wait_for_rebalance()
    a.join()
    b.end()
    b.begin(b.sync_request(), 5)
    a.expect_same(a.sync_request({a: b"first", b: b"second"}), 5)
    b.end()


@pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
def test_the_life_of_a_group_of_one_member_is_the_same(both: NodePair, topic: str, group: str, version: int) -> None:
    sync, beat, leave, commit = (min(version, latest) for latest in (5, 4, 5, 9))
    with member(both, "a", group, topics=[topic]) as a:
        a.join(version)
        compare_group(both, group)
        a.expect_same(a.commit_request(topic, 1), max(commit, 2))
        a.heartbeat(beat)
        a.expect_same(a.sync_request({a: b"mine"}), sync)
        compare_group(both, group)
        a.heartbeat(beat)
        a.expect_same(a.commit_request(topic, 5), max(commit, 2))
        a.expect_same(a.sync_request({a: b"again"}), sync)
        both.expect_same(DeleteGroupsRequest(groups_names=[group]), 2)
        a.expect_same(a.leave_request(), leave)
        a.heartbeat(beat)
        a.expect_same(a.leave_request(), leave)
        compare_group(both, group)
        a.expect_same(a.commit_request(topic, 6), max(commit, 2))
        a.join(version, member_id="")
        compare_group(both, group)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 7, 9])
def test_two_members_rebalance_the_same_way(both: NodePair, topic: str, group: str, version: int) -> None:
    sync = min(version, 5)
    with member(both, "a", group, topics=[topic]) as a, member(both, "b", group, topics=["other"]) as b:
        a.protocols = [("range", encode_subscription(topic)), ("roundrobin", b"r")]
        b.protocols = [("sticky", b"s"), ("roundrobin", b"r2"), ("range", encode_subscription("other"))]
        a.join(version)
        a.expect_same(a.sync_request({a: b"all"}), sync)
        b.send_join(version)
        a.wait_for_rebalance()
        compare_group(both, group)
        a.expect_same(a.commit_request(topic, 3), 8)
        a.expect_same(a.sync_request(), sync)
        a.join(version)
        b.end()
        compare_group(both, group)
        chosen: dict[str, Any] = {"protocol_name": "roundrobin"} if version >= 5 else {}
        b.begin(b.sync_request(**chosen), sync)
        assert a.heartbeat() == 0
        a.expect_same(a.sync_request({a: b"first"}, **chosen), sync)
        b.end()
        compare_group(both, group)
        b.expect_same(b.commit_request(topic, 4), 8)
        a.expect_same(a.leave_request(), 5)
        b.wait_for_rebalance()
        b.join(version)
        compare_group(both, group)
        b.expect_same(b.leave_request(), 5)
        compare_group(both, group)


def test_a_change_of_protocols_causes_a_rebalance(both: NodePair, topic: str, group: str) -> None:
    with member(both, "a", group, topics=[topic]) as a, member(both, "b", group, topics=[topic]) as b:
        stable_pair(a, b)
        b.join()  # nothing changed, so there is no rebalance
        b.protocols = [("range", encode_subscription(topic, "more"))]
        b.send_join()
        a.wait_for_rebalance()
        a.join()
        b.end()
        b.join()  # the same join again, before the assignment
        a.join()
        a.protocols = [("range", encode_subscription("less"))]
        a.send_join()
        b.wait_for_rebalance()
        b.join()
        a.end()
        compare_group(both, group)


def test_a_join_ends_the_wait_for_an_assignment(both: NodePair, topic: str, group: str) -> None:
    with (
        member(both, "a", group, topics=[topic]) as a,
        member(both, "b", group, topics=[topic]) as b,
        member(both, "c", group, topics=[topic]) as c,
    ):
        a.join()
        a.expect_same(a.sync_request({a: b"all"}), 5)
        b.send_join()
        a.wait_for_rebalance()
        a.join()
        b.end()
        b.begin(b.sync_request(), 5)
        c.send_join()
        b.end()
        a.send_join()
        b.join()
        a.end()
        c.end()
        compare_group(both, group)


@pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
def test_invalid_joins_are_refused(both: NodePair, topic: str, group: str, version: int) -> None:
    with member(both, "a", group, topics=[topic]) as a, member(both, "b", group, topics=[topic]) as b:

        def request(**fields: Any) -> JoinGroupRequest:
            values: dict[str, Any] = {
                "group_id": group,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"x")],
            }
            return JoinGroupRequest(**{**values, **fields})

        b.expect_same(request(member_id="nobody"), version)
        b.expect_same(request(group_id=""), version)
        for timeout in (5_999, 1_800_001, -1, 0):
            b.expect_same(request(session_timeout_ms=timeout), version)
        b.expect_same(request(protocols=[], group_id=f"{group}-x"), version)
        b.expect_same(request(protocol_type="", group_id=f"{group}-y"), version)
        both.expect_same_soon(DescribeGroupsRequest(groups=[f"{group}-x", f"{group}-y"]), 6)
        a.join(version)
        b.expect_same(request(protocol_type="connect"), version)
        b.expect_same(request(protocols=[JoinGroupRequestProtocol(name="other", metadata=b"x")]), version)
        b.expect_same(request(protocols=[]), version)
        b.expect_same(request(member_id="nobody"), version)
        if version >= 5:
            b.expect_same(request(member_id="nobody", group_instance_id="nobody"), version)
        compare_group(both, group)


@pytest.mark.parametrize("version", versions_of(ApiKey.SYNC_GROUP))
def test_invalid_syncs_are_refused(both: NodePair, topic: str, group: str, version: int) -> None:
    protocol: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    both.expect_same(SyncGroupRequest(group_id="missing", generation_id=1, member_id="nobody", **protocol), version)
    both.expect_same(SyncGroupRequest(group_id="", generation_id=1, member_id="nobody", **protocol), version)
    with member(both, "a", group, topics=[topic]) as a:
        a.join()
        a.expect_same(a.sync_request(generation_id=7), version)
        a.expect_same(a.sync_request(member_id="nobody"), version)
        if version >= 3:
            a.expect_same(a.sync_request(group_instance_id="nobody"), version)
        if version >= 5:
            for kind in (None, "", "connect"):
                a.expect_same(a.sync_request(protocol_type=kind), version)
                a.expect_same(a.sync_request(protocol_name=kind), version)
        a.expect_same(a.sync_request(), version)
        a.expect_same(a.sync_request(generation_id=7), version)
        a.expect_same(a.leave_request(), 5)
        a.expect_same(a.sync_request(), version)


@pytest.mark.parametrize("version", versions_of(ApiKey.HEARTBEAT))
def test_invalid_heartbeats_are_refused(both: NodePair, topic: str, group: str, version: int) -> None:
    both.expect_same(HeartbeatRequest(group_id="missing", generation_id=1, member_id="nobody"), version)
    both.expect_same(HeartbeatRequest(group_id="", generation_id=1, member_id="nobody"), version)
    with member(both, "a", group, topics=[topic]) as a:
        a.join()
        a.heartbeat(version, generation_id=7)
        a.heartbeat(version, member_id="nobody")
        a.heartbeat(version, member_id="")
        if version >= 3:
            a.heartbeat(version, group_instance_id="nobody")


@pytest.mark.parametrize("version", versions_of(ApiKey.LEAVE_GROUP))
def test_members_leave_the_same_way(both: NodePair, topic: str, group: str, version: int) -> None:
    many = [MemberIdentity(member_id="nobody"), MemberIdentity(member_id="", group_instance_id="no such")]
    for name in ("missing", ""):
        both.expect_same(LeaveGroupRequest(group_id=name, member_id="nobody", members=many), version)
    with member(both, "a", group, topics=[topic]) as a, member(both, "b", group, instance="i", topics=[topic]) as b:
        a.join()
        b.send_join()
        a.wait_for_rebalance()
        a.join()
        b.end()
        both.expect_same(LeaveGroupRequest(group_id=group, member_id="nobody", members=many), version)
        both.expect_same(LeaveGroupRequest(group_id=group, member_id="", members=[]), version)
        if version >= 3:
            wrong = MemberIdentity(member_id="nobody", group_instance_id="i")
            both.expect_same(LeaveGroupRequest(group_id=group, members=[wrong]), version)
            both.expect_same(
                lambda side: LeaveGroupRequest(
                    group_id=group,
                    members=[
                        MemberIdentity(member_id="", group_instance_id="i"),
                        MemberIdentity(member_id=a.member_id_on(side)),
                        MemberIdentity(member_id=a.member_id_on(side)),
                    ],
                ),
                version,
            )
            compare_group(both, group)


def test_a_pending_member_leaves_the_same_way(both: NodePair, topic: str, group: str) -> None:
    with member(both, "a", group, topics=[topic]) as a:
        a.expect_same(a.join_request(), 9)
        compare_group(both, group)
        a.heartbeat(generation_id=0)
        a.expect_same(a.sync_request(generation_id=0), 5)
        a.expect_same(a.leave_request(), 5)
        a.expect_same(a.join_request(), 9)
        compare_group(both, group)


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_keep_their_assignment(both: NodePair, topic: str, group: str, version: int) -> None:
    with (
        member(both, "a", group, instance="first", topics=[topic]) as a,
        member(both, "b", group, instance="second", topics=[topic]) as b,
        member(both, "a again", group, instance="first", topics=[topic]) as a2,
        member(both, "b again", group, instance="second", topics=[topic]) as b2,
    ):
        stable_pair(a, b)
        compare_group(both, group)
        b2.join(version)
        b2.expect_same(b2.sync_request(), 5)
        compare_group(both, group)
        b.heartbeat()
        b.expect_same(b.commit_request(topic, 9), 9)
        b.join(version)
        b.expect_same(b.sync_request(), 5)
        b.expect_same(b.leave_request(), 5)
        a2.join(version)
        a2.expect_same(a2.sync_request(), 5)
        a2.heartbeat()
        compare_group(both, group)
        # A change of protocols causes a rebalance; a member that waits under the old id is fenced.
        b2.send_join(version, protocols=[JoinGroupRequestProtocol(name="range", metadata=encode_subscription("other"))])
        a2.wait_for_rebalance()
        with member(both, "b third", group, instance="second", topics=[topic]) as b3:
            b3.send_join(version)
            b2.end()
            a2.join(version)
            b3.end()
            compare_group(both, group)


def test_offsets_of_subscribed_topics_are_not_deleted(both: NodePair, topic: str, group: str) -> None:
    other = both.new_topic()

    def delete(name: str) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        )

    with member(both, "a", group, topics=[topic]) as a:
        a.join()
        a.expect_same(a.sync_request({a: b"mine"}), 5)
        for name in (topic, other):
            a.expect_same(a.commit_request(name, 4), 9)
        for name in (topic, other):
            both.expect_same(delete(name), 0)
        compare_group(both, group)
        a.expect_same(a.leave_request(), 5)
        both.expect_same(delete(topic), 0)
        compare_group(both, group)


def test_groups_of_another_protocol_type_get_the_same_answers(both: NodePair, topic: str, group: str) -> None:
    with member(both, "a", group) as a:
        a.protocol_type, a.protocols = "connect", [("default", b"\1\2\3")]
        a.join()
        a.expect_same(a.sync_request({a: b"work"}), 5)
        compare_group(both, group)
        a.expect_same(a.commit_request(topic, 4), 9)
        name = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        both.expect_same(OffsetDeleteRequest(group_id=group, topics=[name]), 0)
        a.expect_same(a.leave_request(), 5)
        both.expect_same(OffsetDeleteRequest(group_id=group, topics=[name]), 0)
        both.expect_same(DeleteGroupsRequest(groups_names=[group]), 2)


def read_group_records(both: NodePair, group: str) -> list[list[object]]:
    """Return a group's records in `__consumer_offsets` on both nodes, without times and random ids."""
    records = []
    answers = both.ask(fetch(12, Part("__consumer_offsets", max_bytes=50_000_000)), 12)
    for side, answer in zip(both.sides, answers, strict=True):
        data = bytes(answer.responses[0].partitions[0].records or b"")
        entries: list[object] = []
        for pos, header in read_batches(data):
            entries += [
                (entry.version, _comparable(entry.key, side), _comparable(entry.value, side))
                for entry in entries_of(GroupsBehaviour.kinds, data, pos, header)
                if isinstance(entry, Stored) and getattr(entry.key, "group", None) == group
            ]
        records.append(entries)
    return records


def _comparable(message: Any, side: Side) -> Any:
    if isinstance(message, list):
        return sorted((_comparable(item, side) for item in message), key=repr)
    if isinstance(message, str):
        return side.names.generated.get(message, message)
    if isinstance(message, bytes) and message in side.names.topics:
        return side.names.topics[message]
    if message is None or isinstance(message, int | bytes):
        return message
    return {
        name: _comparable(getattr(message, name), side)
        for name in schema_of(type(message)).fields
        if not name.endswith("timestamp") or getattr(message, name) == -1
    }


def test_stored_records_are_equal(both: NodePair, topic: str, group: str) -> None:
    with member(both, "a", group, topics=[topic]) as a, member(both, "b", group, instance="i", topics=[topic]) as b:
        stable_pair(a, b)
        for version in (2, 8, 9, 10):
            a.expect_same(a.commit_request(topic, version), version)
        a.expect_same(a.commit_request(topic, 77, retention_time_ms=60_000), 2)
        a.expect_same(a.leave_request(), 5)
        b.expect_same(b.leave_request(), 5)
        name = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        both.expect_same(OffsetDeleteRequest(group_id=group, topics=[name]), 0)
        both.expect_same(DeleteGroupsRequest(groups_names=[group]), 2)
        kafka, ottla = read_group_records(both, group)
        assert ottla == kafka
        assert len(ottla) == 11
