"""The states of partitions and replicas: the transition table, and the state tracker.

Random walks compare the tracker with a simple model, which visits every replica of every image, keeps its state, and
knows what brokers have removed.
"""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from ottla.metadata.controller import registration, state_tracker
from ottla.metadata.controller.alter_partition import alter_partition
from ottla.metadata.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from ottla.metadata.controller.delete_topics import delete_topics
from ottla.metadata.controller.partition_reassignments import alter_partition_reassignments
from ottla.metadata.controller.replica_states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionState,
    ReplicaState,
    find_steps,
    partition_state,
    take_step,
)
from ottla.metadata.controller.state_tracker import ASSUMED_AFTER_MS, StateTracker
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import NO_LEADER, Partition
from ottla.protocol.messages.records.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.rpc import alter_partition as alter
from ottla.protocol.messages.rpc import assign_replicas_to_dirs as assign
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatResponse
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from tests.support.counting import count_lines
from tests.unit.metadata.controller.cluster import Cluster, directory, uuid
from tests.unit.metadata.controller.test_random_walk import Walk
from tests.unit.metadata.image.stories import replay
from tests.unit.metadata.image.test_cost import change as one_change
from tests.unit.metadata.image.test_cost import topics as many_topics

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
Key = tuple[bytes, int, int]
"""A replica: topic id, partition, broker."""


# -- the table --


def test_a_replica_takes_the_steps_of_the_document() -> None:
    life = [ReplicaState.NON_EXISTENT, NEW, ONLINE, OFFLINE, ONLINE, OFFLINE, STARTED, SUCCESSFUL]
    for old, new in pairwise([*life, ReplicaState.NON_EXISTENT]):
        assert take_step(old, new) is new


def test_a_partition_takes_the_steps_of_the_document() -> None:
    states = PartitionState
    life = [states.NON_EXISTENT, states.NEW, states.ONLINE, states.OFFLINE, states.ONLINE, states.OFFLINE]
    for old, new in pairwise([*life, states.NON_EXISTENT]):
        assert take_step(old, new) is new


def test_every_state_has_its_transitions() -> None:
    assert {*PARTITION_TRANSITIONS} == {*PartitionState}
    assert {*REPLICA_TRANSITIONS} == {*ReplicaState}
    assert not any(state in following for state, following in [*PARTITION_TRANSITIONS.items()])
    assert not any(state in following for state, following in [*REPLICA_TRANSITIONS.items()])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ONLINE, NEW),
        (OFFLINE, NEW),
        (ONLINE, STARTED),
        (ReplicaState.NON_EXISTENT, ONLINE),
        (STARTED, ONLINE),
        (SUCCESSFUL, STARTED),
        (OFFLINE, ReplicaState.NON_EXISTENT),
        (NEW, NEW),
    ],
)
def test_an_illegal_step_is_an_assertion_error(old: ReplicaState, new: ReplicaState) -> None:
    with pytest.raises(AssertionError, match="is illegal"):
        take_step(old, new)


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        (ReplicaState.NON_EXISTENT, ONLINE, (NEW, ONLINE)),
        (ReplicaState.NON_EXISTENT, OFFLINE, (NEW, OFFLINE)),
        (ONLINE, STARTED, (OFFLINE, STARTED)),
        (ONLINE, SUCCESSFUL, (OFFLINE, STARTED, SUCCESSFUL)),
        (ONLINE, ONLINE, ()),
    ],
)
def test_one_image_may_hold_several_steps(
    old: ReplicaState, new: ReplicaState, steps: tuple[ReplicaState, ...]
) -> None:
    assert find_steps(old, new) == steps


@pytest.mark.parametrize(("old", "new"), [(ONLINE, NEW), (OFFLINE, NEW), (STARTED, OFFLINE), (SUCCESSFUL, ONLINE)])
def test_no_steps_lead_through_non_existent(old: ReplicaState, new: ReplicaState) -> None:
    with pytest.raises(AssertionError, match="no legal steps"):
        find_steps(old, new)


def test_a_partition_is_new_until_it_has_its_first_leader() -> None:
    fresh = Partition((1,), (1,), (), (), NO_LEADER, 0, 0, (bytes(16),), 0, (), ())
    assert partition_state(fresh) is PartitionState.NEW
    assert partition_state(fresh._replace(leader=1)) is PartitionState.ONLINE
    assert partition_state(fresh._replace(leader_epoch=1)) is PartitionState.OFFLINE


# -- the tracker --


class Tracked:
    """A cluster whose images and heartbeats a tracker follows."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tracker = StateTracker()
        self.standby = StateTracker()
        self.tracker.is_active = True
        self.model = Model()
        self.follows_from = self.standby_follows_from = -1
        """The offsets up to which the active controller and the standby have followed."""
        apply, beat = cluster.apply, cluster.beat

        def applied(decision: Any) -> Any:
            before = cluster.image
            reply = apply(decision)
            self.follow(Changes.between(before, cluster.image))
            return reply

        def beaten(broker: int, **changes: Any) -> BrokerHeartbeatResponse:
            asked = len(cluster.asked)
            reply = beat(broker, **changes)
            request = cluster.asked[asked].request
            if not reply.is_fenced:
                self.tracker.record_heartbeat(broker, request.current_metadata_offset, request.offline_log_dirs)
                self.model.record_heartbeat(cluster.image, broker, request.current_metadata_offset)
            return reply

        cluster.apply = applied  # type: ignore[method-assign]
        cluster.beat = beaten  # type: ignore[method-assign]
        self.follow(Changes.between(EMPTY, cluster.image))

    def follow(self, changes: Changes) -> None:
        self.tracker.follow(changes)
        self.standby.follow(changes)
        self.model.follow(changes.new)

    def fail_over(self) -> None:
        """Make the standby the active controller, and start another standby from a snapshot."""
        self.tracker.is_active = False
        self.tracker, self.standby = self.standby, StateTracker()
        self.follows_from, self.standby_follows_from = self.standby_follows_from, self.cluster.image.offset
        self.standby.follow(Changes.between(EMPTY, self.cluster.image))
        self.tracker.is_active = True
        for key, state in self.live().items():
            if state is not self.model.live[key]:
                # A snapshot does not show whether an adding replica was in the ISR before.
                assert self.follows_from >= 0
                assert (state, self.model.live[key]) == (NEW, OFFLINE)
                self.model.live[key] = NEW

    def live(self) -> dict[Key, ReplicaState]:
        return {
            (topic.id, each.number, broker): state
            for topic in self.cluster.image.topics.values()
            for each in self.tracker.states_of(topic, 0, len(topic.partitions))
            for broker, state in each.replicas.items()
        }

    def states(self, name: str = "t", number: int = 0) -> dict[int, ReplicaState]:
        (states,) = self.tracker.states_of(self.cluster.image.topics[name], number, number + 1)
        return states.replicas

    def deletion(self) -> dict[tuple[int, int], ReplicaState]:
        return {(number, broker): state for each in self.tracker.deletions for number, broker, state in each.replicas()}

    def delete(self, name: str = "t") -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=self.cluster.topic_id(name))])
        self.cluster.ask(delete_topics, request)

    def in_sync(self, *isr: int, name: str = "t", number: int = 0) -> None:
        cluster, partition = self.cluster, self.cluster.partition(name, number)
        data = alter.PartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[alter.BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in isr],
        )
        topic = alter.TopicData(topic_id=cluster.topic_id(name), partitions=[data])
        leader = partition.leader
        request = alter.AlterPartitionRequest(broker_id=leader, broker_epoch=cluster.epochs[leader], topics=[topic])
        answer = cluster.ask(alter_partition, request).topics[0].partitions[0]
        assert answer.error_code == 0 or cluster.partition(name, number) != partition

    def reassign(self, *replicas: int, name: str = "t", number: int = 0) -> None:
        target = ReassignablePartition(partition_index=number, replicas=[*replicas] or None)
        topic = ReassignableTopic(name=name, partitions=[target])
        self.cluster.ask(alter_partition_reassignments, AlterPartitionReassignmentsRequest(topics=[topic]))

    def check(self) -> None:
        """Assert that the tracker agrees with the model."""
        for tracker in (self.tracker, self.standby):
            assert tracker.image is self.cluster.image
        live = self.live()
        assert live == self.model.live
        counts = self.tracker.replica_counts()
        for state in (NEW, ONLINE, OFFLINE):
            assert counts[state] == [*live.values()].count(state), state
        going = self.deletion()
        for state in (STARTED, SUCCESSFUL):
            listed = [each for deletion in self.tracker.deletions for *_, each in deletion.replicas()]
            assert counts[state] == listed.count(state), state
        assert len(going) <= counts[STARTED] + counts[SUCCESSFUL]
        partitions = [each for topic in self.cluster.image.topics.values() for each in topic.partitions]
        for kind, number in self.tracker.partition_counts().items():
            assert number == [*map(partition_state, partitions)].count(kind), kind


class Model:
    """A model that computes all states from every image in full."""

    def __init__(self) -> None:
        self.live: dict[Key, ReplicaState] = {}
        self.started: dict[tuple[int, Key], bytes] = {}
        """Replicas that brokers have not removed: since which offset, and in which directory."""
        self._directories: dict[Key, bytes] = {}

    def follow(self, image: Image) -> None:
        now: dict[Key, ReplicaState] = {}
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                for broker_id in partition.replicas:
                    key = topic.id, number, broker_id
                    now[key] = self._state(image, partition, broker_id, self.live.get(key))
                    find_steps(self.live.get(key, ReplicaState.NON_EXISTENT), now[key])
        for key in self.live.keys() - now.keys():
            assert find_steps(self.live[key], STARTED)[-1] is STARTED
            if key[2] in image.brokers:
                self.started[image.offset, key] = self._directories[key]
        self.live = now
        self._directories = {
            (topic.id, number, broker_id): partition.directories[place]
            for topic in image.topics.values()
            for number, partition in enumerate(topic.partitions)
            for place, broker_id in enumerate(partition.replicas)
        }
        self.started = {each: held for each, held in self.started.items() if each[1][2] in image.brokers}

    def record_heartbeat(self, image: Image, broker_id: int, offset: int) -> None:
        """Record that an unfenced broker has applied the metadata up to an offset, in its online directories."""
        log_dirs = image.brokers[broker_id].log_dirs
        self.started = {
            (since, key): held
            for (since, key), held in self.started.items()
            if not (key[2] == broker_id and since <= offset and (held in log_dirs or held < directory(0)))
        }

    @staticmethod
    def _state(image: Image, partition: Partition, broker_id: int, before: ReplicaState | None) -> ReplicaState:
        broker = image.brokers.get(broker_id)
        held = partition.directories[partition.replicas.index(broker_id)]
        is_lost = held == bytes(15) + b"\x02"
        if broker is None or broker.fenced or is_lost:
            return OFFLINE
        if held >= directory(0) and broker.log_dirs and held not in broker.log_dirs:
            return OFFLINE
        if broker_id in partition.isr:
            return ONLINE
        return NEW if broker_id in partition.adding and before in (None, NEW) else OFFLINE


@pytest.fixture
def tracked() -> Tracked:
    tracked = Tracked(Cluster(1, 2, 3, 4))
    tracked.cluster.create("t", [1, 2, 3])
    return tracked


def test_a_replica_that_left_the_isr_is_offline_until_it_has_caught_up(tracked: Tracked) -> None:
    assert tracked.states() == {1: ONLINE, 2: ONLINE, 3: ONLINE}
    tracked.cluster.stop(2)
    assert tracked.states() == {1: ONLINE, 2: OFFLINE, 3: ONLINE}
    tracked.cluster.start(2)
    assert tracked.states()[2] is OFFLINE, "its broker is back, but it has not caught up"
    tracked.in_sync(1, 2, 3)
    assert tracked.states()[2] is ONLINE
    tracked.in_sync(1, 3)
    assert tracked.states()[2] is OFFLINE, "it fell behind"
    tracked.check()


def test_a_replica_that_a_reassignment_adds_is_new_until_it_joins_the_isr(tracked: Tracked) -> None:
    tracked.reassign(1, 2, 4)
    assert tracked.states() == {1: ONLINE, 2: ONLINE, 3: ONLINE, 4: NEW}
    assert tracked.tracker.replica_counts()[NEW] == 1
    tracked.in_sync(1, 2, 3, 4)
    assert tracked.states() == {1: ONLINE, 2: ONLINE, 4: ONLINE}
    assert tracked.deletion() == {(0, 3): STARTED}, (
        "the reassignment is done, and broker 3 has yet to remove its replica"
    )
    tracked.cluster.beat(3)
    assert tracked.deletion() == {}
    tracked.check()


def test_a_new_replica_that_has_left_the_isr_is_not_new_again(tracked: Tracked) -> None:
    tracked.cluster.start(5)
    tracked.reassign(1, 4, 5)
    assert [tracked.states()[broker] for broker in (4, 5)] == [NEW, NEW]
    tracked.in_sync(1, 2, 3, 4)
    assert [tracked.states()[broker] for broker in (4, 5)] == [ONLINE, NEW]
    tracked.in_sync(1, 2, 3)
    assert [tracked.states()[broker] for broker in (4, 5)] == [OFFLINE, NEW]
    tracked.cluster.stop(5)
    tracked.cluster.start(5)
    assert tracked.states()[5] is OFFLINE, "its broker was away"
    tracked.check()


def test_a_cancelled_reassignment_leaves_nothing_new(tracked: Tracked) -> None:
    tracked.reassign(1, 2, 4)
    tracked.reassign()
    assert tracked.states() == {1: ONLINE, 2: ONLINE, 3: ONLINE}
    assert tracked.tracker.replica_counts()[NEW] == 0
    assert tracked.deletion() == {(0, 4): STARTED}


def test_a_deletion_is_over_when_all_brokers_have_removed_their_replicas(tracked: Tracked) -> None:
    tracked.cluster.stop(3)
    tracked.delete()
    assert tracked.deletion() == {(0, 1): STARTED, (0, 2): STARTED, (0, 3): STARTED}
    tracked.cluster.beat(1, current_metadata_offset=tracked.cluster.next_offset - 2)
    assert tracked.deletion()[0, 1] is STARTED, "it has not read of the deletion"
    tracked.cluster.beat(1)
    assert tracked.deletion() == {(0, 1): SUCCESSFUL, (0, 2): STARTED, (0, 3): STARTED}
    tracked.cluster.beat(2)
    assert tracked.deletion() == {(0, 1): SUCCESSFUL, (0, 2): SUCCESSFUL, (0, 3): STARTED}
    assert tracked.tracker.replica_counts()[SUCCESSFUL] == 2
    tracked.cluster.register(3)
    assert tracked.deletion()[0, 3] is STARTED, "it is registered, and has not read of the deletion"
    tracked.cluster.beat(3)
    assert tracked.deletion() == {}, "the replicas do not exist any more"
    assert tracked.tracker.replica_counts() == dict.fromkeys((NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL), 0)


def test_a_recreated_topic_does_not_hide_the_deletion_of_the_old_one(tracked: Tracked) -> None:
    tracked.cluster.stop(3)
    tracked.delete()
    tracked.cluster.create("t", [1, 2])
    for broker in (1, 2):
        tracked.cluster.beat(broker)
    assert tracked.states() == {1: ONLINE, 2: ONLINE}
    assert tracked.deletion() == {(0, 1): SUCCESSFUL, (0, 2): SUCCESSFUL, (0, 3): STARTED}


def with_directories(*replicas: int) -> Tracked:
    """Create a topic whose replica on broker 2 is in the second of two directories."""
    tracked = Tracked(Cluster(1))
    cluster = tracked.cluster
    cluster.start(2, log_dirs=[directory(2, 0), directory(2, 1)])
    cluster.create("t", [*replicas])
    held = [assign.TopicData(topic_id=cluster.topic_id(), partitions=[assign.PartitionData(partition_index=0)])]
    request = assign.AssignReplicasToDirsRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], directories=[assign.DirectoryData(id=directory(2, 1), topics=held)]
    )
    cluster.ask(assign_replicas_to_dirs, request)
    return tracked


def test_a_replica_in_an_offline_directory_is_not_removed() -> None:
    tracked = with_directories(1, 2)
    cluster = tracked.cluster
    tracked.delete()
    cluster.beat(1)
    tracked.tracker.record_heartbeat(2, cluster.image.offset, [directory(2, 1)])
    assert tracked.deletion() == {(0, 1): SUCCESSFUL, (0, 2): STARTED}, "the image does not know of the failure yet"
    cluster.beat(2, offline_log_dirs=[directory(2, 1)])
    cluster.beat(2, offline_log_dirs=[directory(2, 1)])
    assert tracked.deletion()[0, 2] is STARTED
    cluster.stop(2)
    cluster.start(2, log_dirs=[directory(2, 0), directory(2, 1)])
    assert tracked.deletion() == {}, "the directory is back, and what was in it is gone"


def test_the_last_replica_in_sync_is_offline_with_its_directory() -> None:
    tracked = with_directories(2)
    assert tracked.states() == {2: ONLINE}
    tracked.cluster.beat(2, offline_log_dirs=[directory(2, 1)])
    assert tracked.cluster.partition().isr == (2,)
    assert tracked.states() == {2: OFFLINE}
    tracked.check()
    assert tracked.tracker.replica_counts()[OFFLINE] == 1


def test_a_broker_that_has_not_applied_a_deletion_has_removed_nothing(tracked: Tracked) -> None:
    read = tracked.cluster.image.offset
    tracked.cluster.stop(3)
    tracked.delete()
    assert not tracked.cluster.beat(3, current_metadata_offset=read).is_fenced, "it was away, and did not restart"
    for tracker in (tracked.tracker, tracked.standby):
        assert [{*each.started} for each in tracker.deletions] == [{1, 2, 3}]


def test_after_a_failover_the_next_heartbeats_complete_deletions(tracked: Tracked) -> None:
    tracked.cluster.stop(3)
    tracked.delete()
    tracked.cluster.beat(1)
    tracked.fail_over()
    assert tracked.deletion() == {(0, 1): STARTED, (0, 2): STARTED, (0, 3): STARTED}
    for broker in (1, 2):
        tracked.cluster.beat(broker)
    assert tracked.deletion() == {(0, 1): SUCCESSFUL, (0, 2): SUCCESSFUL, (0, 3): STARTED}
    tracked.cluster.start(3)
    assert tracked.deletion() == {}


def test_a_standby_keeps_only_deletions_of_fenced_brokers(tracked: Tracked) -> None:
    tracked.cluster.stop(3)
    tracked.delete()
    assert [{*each.started} for each in tracked.standby.deletions] == [{1, 2, 3}]
    tracked.cluster.now_ms += ASSUMED_AFTER_MS
    tracked.cluster.create("u", [1])
    assert [{*each.started} for each in tracked.standby.deletions] == [{3}]
    assert [{*each.started} for each in tracked.tracker.deletions] == [{1, 2, 3}], "the active one has to be told"
    tracked.cluster.start(3)
    assert [*tracked.standby.deletions] == []


def test_an_unregistered_broker_has_nothing_to_remove(tracked: Tracked) -> None:
    tracked.cluster.stop(3)
    tracked.delete()
    for broker in (1, 2):
        tracked.cluster.beat(broker)
    tracked.cluster.ask(
        registration.unregister_broker, UnregisterBrokerRequest(broker_id=3), tracked.cluster.heartbeats
    )
    assert tracked.deletion() == {}


def test_a_partition_without_a_first_leader_is_counted_as_new() -> None:
    tracker, image = StateTracker(), EMPTY

    def apply(*records: object) -> dict[PartitionState, int]:
        nonlocal image
        before, image = image, replay([*records], image)
        tracker.follow(Changes.between(before, image))
        return {state: number for state, number in tracker.partition_counts().items() if number}

    made = [
        PartitionRecord(partition_id=number, topic_id=uuid(1), replicas=[1], isr=[1], leader=-1, leader_epoch=0)
        for number in (0, 1)
    ]
    assert apply(TopicRecord(name="t", topic_id=uuid(1)), *made) == {PartitionState.NEW: 2}
    led = PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=1)
    assert apply(led) == {PartitionState.NEW: 1, PartitionState.ONLINE: 1}
    lost = PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=-1)
    assert apply(lost) == {PartitionState.NEW: 1, PartitionState.OFFLINE: 1}
    assert apply(RemoveTopicRecord(topic_id=uuid(1))) == {}


def test_the_number_of_tracked_deletions_is_limited(tracked: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tracker, "MAX_DELETIONS", 3)
    tracked.cluster.stop(3)
    for number in range(5):
        tracked.cluster.create(f"u{number}", [1, 2])
        tracked.delete(f"u{number}")
    assert [each.topic for each in tracked.tracker.deletions] == ["u2", "u3", "u4"]
    assert tracked.tracker.forgotten == 2
    for broker in (1, 2):
        tracked.cluster.beat(broker)
    assert [*tracked.tracker.deletions] == []


def test_replica_counts_cost_nothing_while_the_image_stays() -> None:
    costs = []
    for size in (10, 3000):
        image = replay(many_topics(size))
        tracker = StateTracker()
        tracker.follow(Changes.between(EMPTY, image))
        tracker.replica_counts()
        again = count_lines(tracker.replica_counts)
        assert again < 15
        after = one_change(image)
        changes = Changes.between(image, after)
        changes.partitions, changes.brokers  # noqa: B018 (computing the changes is not the tracker's cost)
        after.placement  # noqa: B018 (the controller builds it after each decision)

        def step(tracker: StateTracker = tracker, changes: Changes = changes) -> None:
            tracker.follow(changes)
            tracker.replica_counts()
            tracker.partition_counts()

        costs.append(count_lines(step))
    assert costs[0] == costs[1]
    assert costs[0] < 200


@pytest.mark.parametrize("chunk", range(8))
def test_random_walks_keep_the_states_consistent(chunk: int) -> None:
    for seed in range(chunk * 20, (chunk + 1) * 20):
        walk, random = Walk(seed), Random(f"failover {seed}")
        tracked = Tracked(walk.cluster)
        for number in range(80):
            try:
                walk.step()
                if random.random() < 0.02:
                    tracked.fail_over()
                tracked.check()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {number}") from error
        finish(walk, tracked)


def finish(walk: Walk, tracked: Tracked) -> None:
    """Assert that only fenced brokers, or offline directories, have pending deletions."""
    cluster = walk.cluster
    for broker in [*cluster.image.alive_brokers]:
        cluster.beat(broker.id)
    tracked.check()
    tracking = {
        (deletion.offset, (deletion.topic_id, number, broker))
        for deletion in tracked.tracker.deletions
        for number, broker, state in deletion.replicas()
        if state is STARTED
    }
    left = {each for each in tracked.model.started if each[0] > tracked.follows_from}
    assert left <= tracking, "something is taken for removed that is not"
    away = {broker.id for broker in cluster.image.brokers.values() if broker.fenced}
    assert all(key[2] in away for _, key in tracking - {*tracked.model.started})
