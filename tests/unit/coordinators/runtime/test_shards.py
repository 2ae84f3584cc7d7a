"""Coordinators on a broker's partitions: loading, waiting for replicas, loss of leadership, and oversized records."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.config.settings.catalogue import broker_settings
from ottla.coordinators.groups.expiry import expire_offsets
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import OFFSET_EXPIRY
from ottla.protocol.errors import (
    NONE,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    OffsetMetadataTooLarge,
    UnknownServerError,
    UnknownTopicId,
)
from ottla.protocol.messages.records.metadata_records import ConfigRecord
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
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
from ottla.protocol.wire.compression import Compression
from ottla.storage.state_machine.decision import Decision
from tests.support.broker import ME, Broker, Exchange

TOPIC = "__consumer_offsets"
TOPIC_RESOURCE = 2


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    broker.create_topic("t", partitions=2)
    yield broker
    broker.groups.close()
    broker.settle()
    broker.close()


def commit(offset: int, *, partitions: int = 1, metadata: str = "", group: str = "g") -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index in range(partitions)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def replicas_needed(number: str) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name="min.insync.replicas", value=number)


def code_of(exchange: Exchange) -> int:
    return int(exchange.response.topics[0].partitions[0].error_code)


def fetched(broker: Broker, group: str = "g") -> Any:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = broker.ask(request, 8).groups[0]
    if answer.error_code:
        return answer.error_code
    return [each.committed_offset for topic in answer.topics for each in topic.partitions]


def follower_fetches(broker: Broker, replica: int = 2) -> None:
    """Let the follower fetch everything."""
    partition = broker.partition(TOPIC)
    partition.on_follower_fetch(replica, partition.log.log_end_offset, 0, broker.clock.ms)
    broker.completions.run()


def test_there_is_no_coordinator_before_its_topic(broker: Broker) -> None:
    asked: list[str] = []
    broker.node.create_internal_topic = asked.append
    found = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    assert found.error_code == CoordinatorNotAvailable.code
    assert asked == [TOPIC]
    assert code_of(broker.send(commit(1), 8)) == NotCoordinator.code
    broker.create_topic(TOPIC)
    broker.settle()
    found = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    assert (found.error_code, found.node_id, found.host) == (NONE, ME, f"host{ME}")
    assert code_of(broker.send(commit(1), 8)) == NONE


def test_groups_are_spread_over_partitions(broker: Broker) -> None:
    broker.create_topic(TOPIC, partitions=5)
    broker.settle()
    for number in range(20):
        assert code_of(broker.send(commit(number, group=f"g{number}"), 8)) == NONE
    assert len({broker.groups.partition_of(f"g{number}") for number in range(20)}) > 1
    assert all(len(shard.state.groups) for shard in broker.groups if shard.partition.log.log_end_offset)
    listed = broker.ask(ListGroupsRequest(), 5).groups
    assert {each.group_id for each in listed} == {f"g{number}" for number in range(20)}


def test_a_loading_coordinator_answers_coordinator_load_in_progress(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    shard = broker.groups.shard_at(0)
    assert not shard.is_active
    with pytest.raises(CoordinatorLoading):
        _ = shard.state
    with pytest.raises(CoordinatorLoading):
        shard.submit("test", lambda _: Decision((), None), None)  # type: ignore[arg-type]
    broker.settle()
    assert shard.is_active


def test_offsets_survive_a_new_leader_epoch(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.settle()
    assert code_of(broker.send(commit(7, partitions=2), 8)) == NONE
    first = broker.groups.shard_at(0)
    broker.change(TOPIC, leader=ME)
    assert broker.groups.shard_at(0) is not first, "a new leader epoch starts a new shard"
    broker.settle()
    assert fetched(broker) == [7, 7]


@pytest.mark.parametrize("codec", Compression)
def test_records_are_compressed_as_configured(broker: Broker, codec: Compression) -> None:
    broker.groups.compression = codec
    broker.create_topic(TOPIC)
    broker.settle()
    assert code_of(broker.send(commit(7, partitions=2, metadata="m" * 100), 8)) == NONE
    (segment,) = broker.partition(TOPIC).log.segments
    assert [header.compression for _, header, _, _ in segment.batches(0)] == [codec]
    broker.change(TOPIC, leader=ME)
    broker.settle()
    assert fetched(broker) == [7, 7]


def test_unknown_topics_come_last(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.settle()
    known = broker.node.image.topic(TOPIC)
    assert known is not None
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (b"?" * 16, known.id)]
    answer = broker.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)]), 10).groups[0]
    assert [each.partitions[0].error_code for each in answer.topics] == [NONE, UnknownTopicId.code]


def test_an_answer_waits_for_the_replicas(broker: Broker) -> None:
    broker.create_topic(TOPIC, replicas=(ME, 2))
    broker.settle()
    follower_fetches(broker)
    sent = broker.send(commit(3), 8)
    looked = broker.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
    assert not sent.outcome
    assert not looked.outcome, "it tells of what may yet be lost"
    follower_fetches(broker)
    assert code_of(sent) == NONE
    assert looked.response.groups[0].topics[0].partitions[0].committed_offset == 3


def test_waiting_requests_fail_when_the_leader_moves(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic(TOPIC, replicas=(ME, 2))
    broker.settle()
    follower_fetches(broker)
    joining = broker.send(join_request(), 3)
    follower_fetches(broker)
    sent = broker.send(commit(3), 8)
    broker.change(TOPIC, leader=2)
    assert code_of(sent) == NotCoordinator.code
    assert joining.response.error_code == NotCoordinator.code
    assert code_of(broker.send(commit(4), 8)) == NotCoordinator.code
    found = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    assert found.node_id == 2
    broker.change(TOPIC, leader=ME)
    broker.settle()
    follower_fetches(broker)
    assert fetched(broker) == [3], "the record was in the log of the next leader"


def test_unreplicated_requests_fail_once_when_the_leader_moves(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic(TOPIC, replicas=(ME, 2))
    broker.settle()
    follower_fetches(broker)
    sent = broker.send(commit(3), 8)
    joining = broker.send(join_request(), 3)
    broker.change(TOPIC, leader=2)
    assert code_of(sent) == NotCoordinator.code
    assert joining.response.error_code == NotCoordinator.code


def test_too_few_replicas_change_nothing(broker: Broker) -> None:
    broker.create_topic(TOPIC, replicas=(ME, 2), isr=(ME,))
    broker.settle()
    assert code_of(broker.send(commit(3), 8)) == NONE
    broker.apply(replicas_needed("2"))
    assert code_of(broker.send(commit(9), 8)) == CoordinatorNotAvailable.code
    assert fetched(broker) == [3]


def test_a_commit_is_written_as_one_batch_or_not_at_all(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.settle()
    broker.apply(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name="max.message.bytes", value="500"))
    assert code_of(broker.send(commit(1, metadata="x" * 5000), 8)) == OffsetMetadataTooLarge.code
    assert code_of(broker.send(commit(1, partitions=2, metadata="x" * 300), 8)) == UnknownServerError.code
    assert fetched(broker) == []
    assert code_of(broker.send(commit(1, partitions=2), 8)) == NONE


def test_non_atomic_records_may_be_several_batches(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.settle()
    for number in range(30):
        assert code_of(broker.send(commit(1, group=f"a-group-{number}"), 8)) == NONE
    broker.apply(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name="max.message.bytes", value="300"))
    broker.clock.ms += 8 * 24 * 3600 * 1000
    shard = broker.groups.shard_at(0)
    before = shard.partition.log.log_end_offset

    def expire(state: GroupsState) -> Decision[None]:
        return expire_offsets(state, OFFSET_EXPIRY, broker.groups.behaviour._context())  # type: ignore[attr-defined]

    broker.loop.run_until_complete(shard.ask("test", expire))
    assert not shard.state.groups
    assert shard.partition.log.log_end_offset == before + 60
    broker.change(TOPIC, leader=ME)
    broker.settle()
    assert not broker.groups.shard_at(0).state.offsets


def test_a_heartbeat_of_an_unknown_member_fails(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    assert broker.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1), 4).error_code in (NONE, 25)
    broker.settle()
    assert broker.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1), 4).error_code == 25


def test_an_expiry_that_could_not_be_written_is_retried(broker: Broker) -> None:
    broker.create_topic(TOPIC, replicas=(ME, 2), isr=(ME,))
    broker.settle()
    assert code_of(broker.send(commit(3), 8)) == NONE
    broker.apply(replicas_needed("2"))
    broker.clock.ms += 8 * 24 * 3600 * 1000
    shard = broker.groups.shard_at(0)
    shard._set_timers([(OFFSET_EXPIRY, broker.clock.ms)])
    broker.loop.run_until_complete(asyncio.sleep(0.1))
    assert shard.state.groups
    broker.apply(replicas_needed("1"))
    for _ in range(100):
        broker.loop.run_until_complete(asyncio.sleep(0.1))
        if not shard.state.groups:
            return
    raise AssertionError("the offsets are still there")


def test_setting_the_clock_ends_no_session(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.settle()
    broker.node.setting = lambda name: 0 if name == "group.initial.rebalance.delay.ms" else _default(name)
    joining = broker.send(join_request(), 3)
    for _ in range(100):
        broker.loop.run_until_complete(asyncio.sleep(0.02))
        if joining.outcome:
            break
    member = joining.response.member_id
    broker.clock.ms += 3_600_000
    broker.groups.shard_at(0)._set_timers([(OFFSET_EXPIRY, broker.clock.ms + 10)])
    broker.loop.run_until_complete(asyncio.sleep(0.1))
    beat = HeartbeatRequest(group_id="h", member_id=member, generation_id=1)
    assert broker.ask(beat, 4).error_code == NONE


def _default(name: str) -> Any:
    return broker_settings()[name].default_value
