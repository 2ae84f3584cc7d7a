"""The active controller on simulated time: decisions, responses, periodic tasks and crashes."""

from collections.abc import Iterable
from random import Random

import pytest

from ottla.metadata.controller.replica_states import ReplicaState
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import MetadataLoader, Update
from ottla.metadata.image.placement import PartitionMove, Placement, build_placement
from ottla.metadata.image.values import Topic
from ottla.protocol.errors import NotController, RequestTimedOut, UnknownServerError, UnsupportedVersion
from ottla.protocol.messages.records.metadata_records import TopicRecord
from ottla.protocol.messages.rpc import incremental_alter_configs as configs
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.wire.batch import read_batches
from ottla.storage.state_machine.decision import Decision
from tests.support.one_controller import ME, OneController


@pytest.fixture
def controller() -> OneController:
    active_controller = OneController()
    active_controller.run(3000)
    active_controller.join(ME)
    return active_controller


def creation(*names: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def test_a_created_topic_is_in_the_image_when_the_request_is_answered(controller: OneController) -> None:
    future = controller.submit(creation("t"))
    assert not future.done(), "it is not committed before it is synced"
    assert "t" not in controller.image.topics
    controller.run(0)
    assert [topic.error_code for topic in future.result().topics] == [0]
    assert len(controller.image.topics["t"].partitions) == 2


@pytest.mark.parametrize("life", ["first", "next"])
def test_the_placement_exists_before_a_broker_fails(
    controller: OneController, life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[int] = []

    def count_topics(topics: Iterable[Topic]) -> Placement:
        topics = list(topics)
        visited.append(len(topics))
        return build_placement(topics)

    for number in range(3):
        controller.decide(creation(f"t{number}"))
    if life == "next":
        controller = OneController(controller.crash())
        controller.run(3000)
    monkeypatch.setattr("ottla.metadata.image.image.build_placement", count_topics)
    controller.run(10_000)  # without a heartbeat
    assert controller.image.brokers[ME].fenced
    assert {each.leader for topic in controller.image.topics.values() for each in topic.partitions} == {-1}
    assert visited == [], "all partitions were looked at when it failed"


def test_the_placement_is_built_after_the_response(controller: OneController, monkeypatch: pytest.MonkeyPatch) -> None:
    controller.decide(creation("before"))
    answered: list[bool] = []
    updated = Placement.apply

    def note(self: Placement, moves: Iterable[PartitionMove]) -> Placement:
        answered.append(future.done())
        return updated(self, moves)

    monkeypatch.setattr(Placement, "apply", note)
    future = controller.submit(creation("t"))
    controller.run(0)
    assert answered == [True]
    assert controller.image.placement == build_placement(controller.image.topics.values())


def test_a_request_that_is_not_the_controllers_is_unsupported(controller: OneController) -> None:
    with pytest.raises(UnsupportedVersion):
        controller.submit(FetchRequest())


def test_a_request_with_a_timeout_of_zero_times_out(controller: OneController) -> None:
    future = controller.submit(creation("t", timeout_ms=0))
    assert isinstance(future.exception(), RequestTimedOut)
    controller.run(1000)
    assert "t" not in controller.image.topics


def test_an_error_of_the_whole_request_fails_the_future(controller: OneController) -> None:
    many = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=10_001, replication_factor=1)])
    assert controller.submit(many).exception() is not None


def test_a_record_that_does_not_apply_is_not_written(controller: OneController) -> None:
    controller.decide(creation("t"))
    end, replies = controller.log.end_offset, list[object]()
    again = TopicRecord(name="other", topic_id=controller.image.topics["t"].id)
    controller.active.machine.submit("Bug", lambda image: Decision((again,), None), replies.append)
    assert isinstance(replies[0], UnknownServerError)
    assert controller.log.end_offset == end
    assert not controller.decide(creation("more")).topics[0].error_code


def test_an_inactive_controller_decides_nothing() -> None:
    controller = OneController()
    assert isinstance(controller.submit(creation("t")).exception(), NotController)
    controller.run(3000)
    assert controller.active.is_active


def test_pending_requests_fail_when_leadership_is_lost(controller: OneController) -> None:
    future = controller.submit(creation("t"))
    controller.quorum.resign(controller.quorum.consensus.epoch)
    assert isinstance(future.exception(), NotController)
    assert not controller.active.is_active


def test_a_stopped_controller_decides_nothing(controller: OneController) -> None:
    controller.active.stop()
    assert isinstance(controller.submit(creation("t")).exception(), NotController)
    end = controller.log.end_offset
    controller.run(60_000)
    assert controller.log.end_offset == end, "no chore goes on"


def test_a_broker_without_heartbeats_is_fenced(controller: OneController) -> None:
    assert not controller.image.brokers[ME].fenced
    controller.run(8000)
    assert not controller.image.brokers[ME].fenced
    controller.run(2000)
    assert controller.image.brokers[ME].fenced


def test_an_idle_log_gets_no_op_records(controller: OneController) -> None:
    end = controller.log.end_offset
    controller.run(5000)
    assert controller.log.end_offset - end in range(8, 12)


def test_no_op_records_can_be_disabled() -> None:
    controller = OneController(settings={"metadata.max.idle.interval.ms": "0"})
    controller.run(3000)
    end = controller.log.end_offset
    controller.run(5000)
    assert controller.log.end_offset == end


def test_a_leaderless_partition_elects_an_unclean_leader_if_allowed() -> None:
    controller = OneController(settings={"unclean.leader.election.interval.ms": "1000"})
    controller.run(3000)
    first, second = controller.join(1), controller.join(2)
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=2,
        configs=[CreatableTopicConfig(name="unclean.leader.election.enable", value="false")],
    )
    controller.decide(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    leader = controller.image.topics["t"].partitions[0].leader
    other, epoch = (2, second) if leader == 1 else (1, first)
    controller.run(4000)
    controller.beat(leader, first if leader == 1 else second)
    controller.run(6000)  # the other is fenced, and leaves the ISR
    controller.run(4000)  # then the leader
    controller.beat(other, epoch)
    assert controller.image.topics["t"].partitions[0].leader == -1
    setting = configs.AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    resource = configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])
    controller.decide(configs.IncrementalAlterConfigsRequest(resources=[resource]))
    controller.run(1500)
    assert controller.image.topics["t"].partitions[0].leader == other


def test_a_listing_writes_no_records(controller: OneController) -> None:
    end = controller.log.end_offset
    future = controller.submit(ListPartitionReassignmentsRequest(topics=None))
    assert future.result().topics == []
    assert controller.log.end_offset == end


def test_consensus_raises_the_kraft_version(controller: OneController) -> None:
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    answer = controller.decide(UpdateFeaturesRequest(feature_updates=[update]))
    assert answer.error_code == 0, answer
    assert controller.quorum.consensus.history.kraft_version == 1


def test_an_unknown_topic_id_is_an_error(controller: OneController) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=b"x" * 16)], timeout_ms=1000)
    assert controller.decide(request).responses[0].error_code == 100


def test_consensus_answers_the_requests_of_the_quorum(controller: OneController) -> None:
    answers: list[object] = []

    class Ticket:
        def answer(self, response: object) -> None:
            answers.append(response)

    controller.quorum.request(Ticket(), DescribeQuorumRequest(topics=[]), 2, "CONTROLLER")
    assert len(answers) == 1


def test_heartbeats_show_which_brokers_have_removed_deleted_replicas(controller: OneController) -> None:
    epoch = controller.image.brokers[ME].epoch
    controller.decide(creation("t"))
    read = controller.image.offset
    counts = controller.active.states.replica_counts
    assert counts()[ReplicaState.ONLINE] == 2
    controller.decide(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    assert counts()[ReplicaState.DELETION_STARTED] == 2
    controller.decide(BrokerHeartbeatRequest(broker_id=ME, broker_epoch=epoch, current_metadata_offset=read))
    assert counts()[ReplicaState.DELETION_STARTED] == 2, "the broker has not read of the deletion"
    controller.beat(ME, epoch)
    assert not any(counts().values())


def test_states_are_updated_after_the_response(controller: OneController, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[bool] = []

    def note(changes: object) -> None:
        answered.append(future.done())

    monkeypatch.setattr(controller.active.states, "follow", note)
    future = controller.submit(creation("t"))
    controller.run(0)
    assert answered == [True]


def test_only_an_active_controller_relies_on_heartbeats(controller: OneController) -> None:
    assert controller.active.states.is_active
    controller.quorum.resign(controller.quorum.consensus.epoch)
    assert not controller.active.states.is_active


def test_statistics_are_kept_by_name(controller: OneController) -> None:
    controller.decide(creation("t"))
    assert controller.active.machine.stats["CreateTopics"].count == 1


@pytest.mark.parametrize("seed", range(40))
def test_answered_decisions_survive_every_crash(seed: int) -> None:
    random = Random(seed)
    controller = OneController(seed=seed)
    promised: set[str] = set()
    for life in range(4):
        controller.run(5000)
        assert controller.active.is_active
        assert promised <= {*controller.image.topics}
        controller.join(ME)
        for number in range(random.randrange(6)):
            name = f"t-{life}-{number}"
            future = controller.submit(creation(name))
            if random.random() < 0.6:
                controller.run(random.randrange(50))
            if future.done() and future.exception() is None:
                promised.add(name)
        controller = OneController(controller.crash(), seed=seed)
    controller.run(5000)
    assert promised <= {*controller.image.topics}


def test_a_restart_reads_the_snapshot_and_the_log_after_it() -> None:
    controller = OneController()
    controller.run(3000)
    controller.join(ME)
    controller.decide(creation("before"))
    controller.metadata.write_snapshot(controller.image)
    controller.background.finish()
    controller.decide(creation("after"))
    controller = OneController(controller.crash())
    assert "before" in controller.image.topics, "the snapshot is read before anything is committed"
    assert "after" not in controller.image.topics, "what follows it counts once a leader has committed it"
    controller.run(5000)
    assert {"before", "after"} <= {*controller.image.topics}


def read_again(controller: OneController) -> Image:
    """Return the image of a node that only reads the log."""
    loader = MetadataLoader()
    data = controller.log.read_bytes(0, 1 << 30)
    for position, header in read_batches(data):
        loader.load_batch(data, position, header)
    loader.publish()
    return loader.image


def test_other_nodes_read_what_the_controller_decided(controller: OneController) -> None:
    for name in ("a", "b", "c"):
        controller.submit(creation(name))  # committed together
    controller.run(100)
    controller.join(2)
    controller.decide(DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=30_000))
    assert controller.image is controller.active.machine.state, "nothing had to be read again"
    assert controller.image == read_again(controller)


def test_a_decision_of_several_batches_is_published_as_a_whole(controller: OneController) -> None:
    epoch = controller.join(2)
    topics = [CreatableTopic(name=f"t{each}", num_partitions=1_100, replication_factor=2) for each in range(5)]
    controller.decide(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    updates: list[Update] = []
    controller.metadata.subscribers.append(updates.append)
    before = controller.log.end_offset
    leaving = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, current_metadata_offset=before, want_fence=True)
    future = controller.submit(leaving)
    assert controller.log.end_offset - before > 5_000, "one batch does not hold it"
    controller.metadata.on_committed(before + 5_000)
    assert not updates
    controller.run(100)
    assert future.result().is_fenced
    assert [len(update.changes.partitions) for update in updates] == [5_500]
    assert controller.image == read_again(controller)


def test_records_between_decisions_are_read(controller: OneController) -> None:
    controller.submit(creation("a"))
    controller.quorum.resign(controller.quorum.consensus.epoch)
    controller.run(10_000)
    assert controller.active.is_active, "elected again, with a leader change in the log"
    controller.decide(creation("b"))
    assert {"a", "b"} <= {*controller.image.topics}
    assert controller.image == read_again(controller)
