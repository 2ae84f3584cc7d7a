"""ISR changes, elections, reassignments and directories, by example."""

import pytest

from ottla.metadata.controller import leader_elections
from ottla.metadata.controller.alter_partition import alter_partition
from ottla.metadata.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from ottla.metadata.controller.partition_reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.metadata.image.values import NO_LEADER, LeaderRecovery
from ottla.protocol.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NoReassignmentInProgress,
    NotController,
    NotLeader,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.protocol.messages.rpc import alter_partition as alter
from ottla.protocol.messages.rpc import assign_replicas_to_dirs as assign
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.rpc.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.unit.metadata.controller.cluster import Cluster, directory, uuid


def set_isr(cluster: Cluster, *isr: int, **changes: object) -> alter.ResponsePartitionData:
    """Return the AlterPartition of the leader of t-0."""
    partition, epochs = cluster.partition(), cluster.epochs
    data = alter.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[alter.BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr],
        leader_recovery_state=0,
    )
    broker = changes.pop("broker", partition.leader)
    topic_id = changes.pop("topic_id", cluster.topic_id())
    assert isinstance(broker, int)
    assert isinstance(topic_id, bytes)
    for name, value in changes.items():
        setattr(data, name, value)
    request = alter.AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=epochs.get(broker, -1),
        topics=[alter.TopicData(topic_id=topic_id, partitions=[data])],
    )
    return cluster.apply(alter_partition(cluster.view, request)).topics[0].partitions[0]


def move(cluster: Cluster, replicas: list[int] | None, **changes: object) -> int:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])
    for name, value in changes.items():
        setattr(request, name, value)
    reply = cluster.apply(alter_partition_reassignments(cluster.view, request))
    return reply.responses[0].partitions[0].error_code


def elect(cluster: Cluster, kind: int, *numbers: int, topic: str = "t") -> list[int]:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(topic=topic, partitions=list(numbers))]
    )
    reply = cluster.apply(leader_elections.elect_leaders(cluster.view, request))
    return [each.error_code for each in reply.replica_election_results[0].partition_result]


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", [1, 2, 3])
    return cluster


def test_a_leader_shrinks_and_expands_the_isr(cluster: Cluster) -> None:
    answer = set_isr(cluster, 1, 2)
    assert (answer.error_code, answer.isr, answer.partition_epoch, answer.leader_epoch) == (0, [1, 2], 1, 0)
    assert set_isr(cluster, 1, 2, 3).isr == [1, 2, 3]
    assert set_isr(cluster, 1, 2, 3).partition_epoch == 2


def test_up_to_v2_the_isr_comes_without_epochs(cluster: Cluster) -> None:
    assert set_isr(cluster, new_isr=[1, 3]).isr == [1, 3]


def test_before_3_6_a_shrinking_isr_raises_the_leader_epoch() -> None:
    cluster = Cluster(1, 2, metadata_version=11)
    cluster.create("t", [1, 2])
    assert set_isr(cluster, 1).leader_epoch == 1
    assert set_isr(cluster, 1, 2).leader_epoch == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 1}, NotController),
        ({"partition_epoch": 1}, NotController),
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"partition_epoch": -1}, InvalidUpdateVersion),
        ({"broker": 2}, InvalidRequest),
        ({"partition_index": 9}, UnknownTopicOrPartition),
        ({"topic_id": uuid(77)}, UnknownTopicId),
        ({"leader_recovery_state": 1}, InvalidRequest),
        ({"leader_recovery_state": 7}, InvalidRequest),
    ],
)
def test_an_isr_change_of_an_unknown_partition_is_rejected(
    cluster: Cluster, changes: dict[str, object], error: type[ApiError]
) -> None:
    assert set_isr(cluster, 1, 2, **changes).error_code == error.code


@pytest.mark.parametrize("isr", [[], [2], [1, 1], [1, 4]])
def test_an_invalid_isr_is_rejected(cluster: Cluster, isr: list[int]) -> None:
    assert set_isr(cluster, *isr).error_code == InvalidRequest.code


def test_only_unfenced_brokers_with_the_current_epoch_can_join_the_isr(cluster: Cluster) -> None:
    set_isr(cluster, 1)
    former = [alter.BrokerState(broker_id=1), alter.BrokerState(broker_id=2, broker_epoch=0)]
    assert set_isr(cluster, new_isr_with_epochs=former).error_code == IneligibleReplica.code
    cluster.beat(2, want_fence=True)
    assert set_isr(cluster, 1, 2).error_code == IneligibleReplica.code
    cluster.create("u", [3, 1])
    cluster.beat(3, want_shut_down=True)
    assert set_isr(cluster, 1, 3).error_code == IneligibleReplica.code


def test_an_isr_change_with_a_stale_broker_epoch_is_rejected(cluster: Cluster) -> None:
    with pytest.raises(StaleBrokerEpoch):
        alter_partition(cluster.view, alter.AlterPartitionRequest(broker_id=1, broker_epoch=999))


def test_a_partition_named_twice_is_changed_once(cluster: Cluster) -> None:
    partition = cluster.partition()
    data = [
        alter.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=partition.partition_epoch, new_isr=isr)
        for isr in ([1, 2], [1, 3])
    ]
    request = alter.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        topics=[alter.TopicData(topic_id=cluster.topic_id(), partitions=data)],
    )
    answers = cluster.apply(alter_partition(cluster.view, request)).topics[0].partitions
    assert [each.error_code for each in answers] == [0, InvalidRequest.code]


def test_an_unclean_leader_recovers_before_others_join() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2], configs={"unclean.leader.election.enable": "true"})
    set_isr(cluster, 1)
    cluster.stop(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery == LeaderRecovery.RECOVERING
    cluster.start(1)
    assert set_isr(cluster, 2, 1, leader_recovery_state=1).error_code == InvalidRequest.code
    assert set_isr(cluster, 2, leader_recovery_state=1).leader_recovery_state == LeaderRecovery.RECOVERING
    assert set_isr(cluster, 2, 1).leader_recovery_state == LeaderRecovery.RECOVERED


def test_the_preferred_leader_is_elected_on_demand(cluster: Cluster) -> None:
    assert elect(cluster, 0, 0, 7) == [ElectionNotNeeded.code, UnknownTopicOrPartition.code]
    assert elect(cluster, 0, 0, topic="none") == [UnknownTopicOrPartition.code]
    cluster.stop(1)
    assert elect(cluster, 0, 0) == [PreferredLeaderNotAvailable.code]
    cluster.start(1)
    assert cluster.partition().leader == 2
    set_isr(cluster, 1, 2, 3)
    assert elect(cluster, 0, 0) == [0]
    assert cluster.partition().leader == 1


def test_an_election_of_all_partitions_lists_only_elected_ones(cluster: Cluster) -> None:
    cluster.create("u", [2, 1])
    cluster.stop(1)
    cluster.start(1)
    set_isr(cluster, 1, 2, 3)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    reply = cluster.apply(leader_elections.elect_leaders(cluster.view, request))
    assert {each.topic: len(each.partition_result) for each in reply.replica_election_results} == {"t": 1, "u": 0}


def test_a_requested_unclean_election_needs_no_config() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2])
    assert elect(cluster, 1, 0) == [ElectionNotNeeded.code]
    set_isr(cluster, 1)
    cluster.stop(1)
    assert cluster.partition().leader == NO_LEADER
    assert elect(cluster, 1, 0) == [0]
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    cluster.stop(2)
    assert elect(cluster, 1, 0) == [EligibleLeadersNotAvailable.code]
    with pytest.raises(InvalidRequest):
        elect(cluster, 5, 0)


def test_preferred_leaders_are_restored_a_limited_number_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("u", [1, 2], [1, 3])
    cluster.stop(1)
    cluster.start(1)
    for name, number in (("t", 0), ("u", 0), ("u", 1)):
        assert cluster.partition(name, number).leader != 1
    set_isr(cluster, 1, 2, 3)
    assert not cluster.apply(leader_elections.balance_partition_leaders(cluster.view))
    assert cluster.partition().leader == 1
    monkeypatch.setattr(leader_elections, "MAX_ELECTIONS", 0)
    assert cluster.apply(leader_elections.balance_partition_leaders(cluster.view))


def test_partitions_without_leader_get_one_once_unclean_elections_are_allowed() -> None:
    cluster = Cluster(1, 2, settings={"unclean.leader.election.enable": "true"})
    cluster.create("t", [1, 2], configs={"unclean.leader.election.enable": "false"})
    cluster.create("u", [1, 2])
    for name in ("t", "u"):
        partition = cluster.partition(name)
        assert partition.leader == 1
    set_isr(cluster, 1)
    cluster.stop(1)
    assert not cluster.apply(leader_elections.elect_unclean_leaders(cluster.view))
    assert cluster.partition("t").leader == NO_LEADER
    assert cluster.partition("u").leader == 2


def test_a_reassignment_completes_when_its_new_replicas_are_in_sync(cluster: Cluster) -> None:
    assert move(cluster, [4, 1]) == 0
    moving = cluster.partition()
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 1, 2, 3), (4,), (2, 3))
    assert moving.leader == 1
    answer = set_isr(cluster, 1, 2, 3, 4)
    assert answer.error_code == 0
    done = cluster.partition()
    assert (done.replicas, done.isr, done.adding, done.removing) == ((4, 1), (1, 4), (), ())
    assert done.directories == (directory(4), directory(1))
    assert done.leader_epoch == moving.leader_epoch + 1


def test_a_leader_that_is_reassigned_gets_new_leader_elected(cluster: Cluster) -> None:
    move(cluster, [4, 2, 3])
    assert set_isr(cluster, 1, 2, 3, 4).error_code == NewLeaderElected.code
    assert (cluster.partition().leader, cluster.partition().isr) == (4, (2, 3, 4))


def test_reordering_replicas_is_no_reassignment(cluster: Cluster) -> None:
    assert move(cluster, [3, 2, 1]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.is_reassigning, partition.leader) == ((3, 2, 1), False, 1)


def test_a_reassignment_can_be_cancelled(cluster: Cluster) -> None:
    assert move(cluster, None) == NoReassignmentInProgress.code
    move(cluster, [4])
    assert move(cluster, None) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2, 3), (1, 2, 3), False)


def test_a_reassignment_is_not_cancelled_if_only_new_replicas_are_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", [1])
    move(cluster, [2, 3])
    set_isr(cluster, 1, 2)
    cluster.stop(1)
    assert cluster.partition().isr == (2,)
    assert move(cluster, None) == InvalidReplicaAssignment.code


def test_a_replaced_reassignment_keeps_its_adding_replicas(cluster: Cluster) -> None:
    cluster.start(5)
    move(cluster, [4, 1])
    assert move(cluster, [4, 5]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3))
    move(cluster, None)
    assert sorted(cluster.partition().replicas) == [1, 2, 3]


def test_invalid_reassignments_are_rejected(cluster: Cluster) -> None:
    assert move(cluster, [1, 9]) == InvalidReplicaAssignment.code
    assert move(cluster, [1, 1]) == InvalidReplicaAssignment.code
    assert move(cluster, []) == InvalidReplicaAssignment.code
    assert move(cluster, [1], topics=[ReassignableTopic(name="no", partitions=[ReassignablePartition()])]) == 3
    unchanged = {"allow_replication_factor_change": False}
    assert move(cluster, [4, 1], **unchanged) == InvalidReplicationFactor.code
    assert move(cluster, [4, 1, 2], **unchanged) == 0
    assert move(cluster, [4, 3, 2], **unchanged) == 0


def test_ongoing_reassignments_are_listed(cluster: Cluster) -> None:
    cluster.create("u", [1])
    move(cluster, [4, 1, 2])
    for topics in (None, [ListPartitionReassignmentsTopics(name=each, partition_indexes=[0, 9]) for each in "tux"]):
        reply = list_partition_reassignments(cluster.view, ListPartitionReassignmentsRequest(topics=topics))
        [topic] = reply.topics
        [partition] = topic.partitions
        assert (topic.name, partition.replicas) == ("t", [4, 1, 2, 3])
        assert (partition.adding_replicas, partition.removing_replicas) == ([4], [3])


def assign_directory(cluster: Cluster, broker: int, chosen: bytes, topic_id: bytes, number: int = 0) -> int:
    topic = assign.TopicData(topic_id=topic_id, partitions=[assign.PartitionData(partition_index=number)])
    request = assign.AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=cluster.epochs[broker],
        directories=[assign.DirectoryData(id=chosen, topics=[topic])],
    )
    reply = cluster.apply(assign_replicas_to_dirs(cluster.view, request))
    return reply.directories[0].topics[0].partitions[0].error_code


def test_a_broker_reports_the_directories_of_its_replicas(cluster: Cluster) -> None:
    cluster.start(5, log_dirs=[directory(5, 0), directory(5, 1)])
    cluster.create("u", [5, 1])
    assert assign_directory(cluster, 5, directory(5, 1), cluster.topic_id("u")) == 0
    assert cluster.partition("u").directories == (directory(5, 1), directory(1))
    assert cluster.partition("u").leader == 5
    assert assign_directory(cluster, 5, directory(5, 1), cluster.topic_id("u")) == 0
    assert cluster.written == []
    assert assign_directory(cluster, 5, directory(5), uuid(99)) == UnknownTopicId.code
    assert assign_directory(cluster, 5, directory(5), cluster.topic_id("u"), 3) == UnknownTopicOrPartition.code
    assert assign_directory(cluster, 5, directory(5), cluster.topic_id("t")) == NotLeader.code


def test_a_replica_in_a_directory_that_is_offline_leaves_the_isr(cluster: Cluster) -> None:
    assert assign_directory(cluster, 1, uuid(55), cluster.topic_id()) == 0
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.directories[0]) == (2, (2, 3), uuid(55))


def test_directories_are_assigned_from_3_7_on() -> None:
    cluster = Cluster(1, metadata_version=16)
    cluster.create("t", [1])
    with pytest.raises(UnsupportedVersion):
        assign_directory(cluster, 1, directory(1), cluster.topic_id())


def test_below_min_isr_a_replica_that_left_cleanly_is_eligible() -> None:
    cluster = Cluster(1, 2, 3, elr=True)
    cluster.create("t", [1, 2, 3], configs={"min.insync.replicas": "2"})
    cluster.stop(1)
    assert cluster.partition().elr == ()
    cluster.stop(2)
    assert (cluster.partition().isr, cluster.partition().elr) == ((3,), (2,))
    cluster.start(1)
    set_isr(cluster, 3, 1)
    assert cluster.partition().elr == ()


def test_the_last_known_leader_leads_again_when_none_is_eligible() -> None:
    cluster = Cluster(1, 2, elr=True)
    cluster.create("t", [1, 2], configs={"min.insync.replicas": "2"})
    cluster.stop(1)
    cluster.stop(2)
    partition = cluster.partition()
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (1, 2), (2,))
    cluster.start(1)  # both restart after an unclean shutdown
    assert cluster.partition().leader == NO_LEADER
    cluster.start(2)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (2, (2,), (), ())
    assert partition.leader_recovery == LeaderRecovery.RECOVERING
