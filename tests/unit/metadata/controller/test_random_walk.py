"""Random events on a cluster; after each one the controller's records must be consistent.

A seed gives a walk. Brokers register, send heartbeats, expire, shut down and are unregistered; topics are created and
deleted; leaders change ISRs; operators reassign partitions and elect leaders. Each decision checks all invariants.
"""

from collections.abc import Callable
from random import Random

import pytest

from ottla.metadata.controller import leader_elections, registration
from ottla.metadata.controller.alter_partition import alter_partition
from ottla.metadata.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from ottla.metadata.controller.configs import incremental_alter_configs
from ottla.metadata.controller.create_partitions import create_partitions
from ottla.metadata.controller.delete_topics import delete_topics
from ottla.metadata.controller.partition_reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.metadata.image.image import Image, TopicPartition
from ottla.metadata.image.placement import build_placement
from ottla.metadata.image.values import DIRECTORY_UNASSIGNED, NO_LEADER, Partition
from ottla.protocol.errors import ApiError, NewLeaderElected
from ottla.protocol.messages.rpc import alter_partition as alter
from ottla.protocol.messages.rpc import assign_replicas_to_dirs as assign
from ottla.protocol.messages.rpc import incremental_alter_configs as configs
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from tests.unit.metadata.controller.cluster import SESSION_MS, Cluster, directory

BROKERS = range(1, 7)
STEPS = 80
SEEDS = 200


class Walk:
    """A cluster, and its possible events."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.elr = self.random.random() < 0.5
        level = 30 if self.elr else self.random.choice([7, 11, 12, 16, 17, 25, 30])
        self.cluster = Cluster(1, 2, 3, 4, seed=seed, metadata_version=level, elr=self.elr)
        self.unclean = False
        self.events: list[Callable[[], None]] = [
            *[self.start_broker] * 4,
            *[self.beat] * 8,
            *[self.alter_isr] * 8,
            *[self.reassign] * 3,
            *[self.create_topic] * 2,
            self.vanish,
            self.vanish,
            self.shut_down,
            self.unregister,
            self.delete_topic,
            self.add_partitions,
            self.elect,
            self.scan,
            self.configure,
            self.lose_directory,
            self.assign_directory,
        ]

    def step(self) -> None:
        before = self.cluster.image
        event = self.random.choice(self.events)
        try:
            event()
        except ApiError:
            assert self.cluster.image is before, f"{event.__name__} failed and changed something"
        check(before, self.cluster)

    def some_broker(self) -> int:
        return self.random.choice(BROKERS)

    def some_partition(self) -> TopicPartition | None:
        topics = sorted(self.cluster.image.topics)
        if not topics:
            return None
        topic = self.cluster.image.topics[self.random.choice(topics)]
        number = self.random.randrange(len(topic.partitions))
        return TopicPartition(topic, number, topic.partitions[number])

    def start_broker(self) -> None:
        broker = self.some_broker()
        known = self.cluster.image.brokers.get(broker)
        clean = known is not None and self.random.random() < 0.5
        self.cluster.register(
            broker,
            rack=self.random.choice([None, "a", "b"]),
            previous_broker_epoch=known.epoch if known is not None and clean else -1,
            log_dirs=[directory(broker, number) for number in range(self.random.choice([1, 2]))],
        )
        self.cluster.beat(broker)

    def beat(self) -> None:
        self.cluster.now_ms += self.random.randrange(1_000)
        self.cluster.beat(
            self.some_broker(),
            current_metadata_offset=self.cluster.next_offset - self.random.choice([1, 1, 1, 3]),
        )

    def shut_down(self) -> None:
        self.cluster.beat(self.some_broker(), want_shut_down=True, want_fence=self.random.random() < 0.1)

    def vanish(self) -> None:
        """Advance time, and fence the brokers that send no heartbeat."""
        gone = self.some_broker()
        self.cluster.now_ms += SESSION_MS // 2
        for broker in sorted(self.cluster.image.brokers):
            if broker != gone and not self.cluster.image.brokers[broker].fenced:
                self.cluster.beat(broker)
        self.cluster.now_ms += SESSION_MS // 2 + 1
        while self.cluster.fence_one():
            pass

    def unregister(self) -> None:
        broker = self.some_broker()
        if self.cluster.image.is_alive(broker) and self.random.random() < 0.7:
            return
        request = UnregisterBrokerRequest(broker_id=broker)
        self.cluster.ask(registration.unregister_broker, request, self.cluster.heartbeats)

    def create_topic(self) -> None:
        if len(self.cluster.image.topics) > 6:
            return
        settings = {"min.insync.replicas": str(self.random.choice([1, 2, 3]))}
        if self.random.random() < 0.2:
            settings["unclean.leader.election.enable"] = "true"
        self.cluster.create(
            f"topic-{self.random.randrange(12)}",
            partitions=self.random.randrange(1, 4),
            factor=self.random.randrange(1, 4),
            configs=settings,
        )

    def delete_topic(self) -> None:
        if topic_partition := self.some_partition():
            state = DeleteTopicState(topic_id=topic_partition.topic.id)
            self.cluster.ask(delete_topics, DeleteTopicsRequest(topics=[state]))

    def add_partitions(self) -> None:
        if topic_partition := self.some_partition():
            topic = CreatePartitionsTopic(
                name=topic_partition.topic.name, count=len(topic_partition.topic.partitions) + 1, assignments=None
            )
            request = CreatePartitionsRequest(topics=[topic])
            self.cluster.ask(create_partitions, request, random=self.random)

    def alter_isr(self) -> None:
        """Let a leader expand or shrink an ISR, with epochs that may be stale."""
        topic_partition = self.some_partition()
        if topic_partition is None or not topic_partition.partition.has_leader:
            return
        partition = topic_partition.partition
        isr = {partition.leader, *(each for each in partition.replicas if self.random.random() < 0.7)}
        recovery = partition.leader_recovery
        if recovery and self.random.random() < 0.7:
            recovery = 0
        epochs = self.cluster.epochs
        data = alter.PartitionData(
            partition_index=topic_partition.number,
            leader_epoch=partition.leader_epoch - (self.random.random() < 0.05),
            partition_epoch=partition.partition_epoch + self.random.choice([0] * 20 + [-1, 1]),
            new_isr_with_epochs=[
                alter.BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in sorted(isr)
            ],
            leader_recovery_state=recovery,
        )
        request = alter.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=epochs[partition.leader],
            topics=[alter.TopicData(topic_id=topic_partition.topic.id, partitions=[data])],
        )
        answer = self.cluster.ask(alter_partition, request).topics[0].partitions[0]
        now = self.cluster.partition(topic_partition.topic.name, topic_partition.number)
        if answer.error_code == 0:
            assert (answer.leader_id, answer.leader_epoch) == (now.leader, now.leader_epoch)
            assert (tuple(answer.isr), answer.partition_epoch) == (now.isr, now.partition_epoch)
        elif answer.error_code != NewLeaderElected.code:
            assert now == partition

    def reassign(self) -> None:
        topic_partition = self.some_partition()
        known = sorted(self.cluster.image.brokers)
        if topic_partition is None or not known:
            return
        wanted = self.random.sample(known, self.random.randrange(1, min(4, len(known)) + 1))
        target = ReassignablePartition(
            partition_index=topic_partition.number, replicas=None if self.random.random() < 0.25 else wanted
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic_partition.topic.name, partitions=[target])],
            allow_replication_factor_change=self.random.random() < 0.8,
        )
        self.cluster.ask(alter_partition_reassignments, request)

    def elect(self) -> None:
        request = ElectLeadersRequest(election_type=self.random.choice([0, 1]), topic_partitions=None)
        self.cluster.ask(leader_elections.elect_leaders, request)

    def scan(self) -> None:
        self.cluster.ask(leader_elections.balance_partition_leaders, None)
        self.cluster.ask(leader_elections.elect_unclean_leaders, None)

    def configure(self) -> None:
        self.unclean = not self.unclean
        changes = [
            configs.AlterableConfig(name="unclean.leader.election.enable", value=str(self.unclean).lower()),
            configs.AlterableConfig(name="min.insync.replicas", value=str(self.random.choice([1, 2, 3]))),
        ]
        resource = configs.AlterConfigsResource(resource_type=4, resource_name="", configs=changes)
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        self.cluster.ask(incremental_alter_configs, request)

    def lose_directory(self) -> None:
        broker = self.cluster.image.brokers.get(self.some_broker())
        if broker is not None and len(broker.log_dirs) > 1:
            self.cluster.beat(broker.id, offline_log_dirs=[self.random.choice(broker.log_dirs)])

    def assign_directory(self) -> None:
        broker = self.cluster.image.brokers.get(self.some_broker())
        if broker is None or not broker.log_dirs:
            return
        chosen = directory(broker.id, self.random.choice([0, 1]))
        held = [
            assign.TopicData(topic_id=each.topic.id, partitions=[assign.PartitionData(partition_index=each.number)])
            for each in self.cluster.image.partitions_with_replica(broker.id)
            if each.partition.directory_of(broker.id) == DIRECTORY_UNASSIGNED
        ]
        request = assign.AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[assign.DirectoryData(id=chosen, topics=held)],
        )
        self.cluster.ask(assign_replicas_to_dirs, request)


def check(before: Image, cluster: Cluster) -> None:
    image = cluster.image
    assert image.placement == build_placement(image.topics_by_id.values())
    for topic in image.topics.values():
        old_topic = before.topics_by_id.get(topic.id)
        for number, partition in enumerate(topic.partitions):
            check_partition(partition, elr=cluster.view.elr_enabled)
            old = None if old_topic is None else old_topic.partition(number)
            if old is not None and old != partition:
                check_change(old, partition)
            if partition.has_leader:
                check_leader(image, partition)
    for broker in image.brokers.values():
        old_broker = before.brokers.get(broker.id)
        assert old_broker is None or broker.epoch >= old_broker.epoch
    assert all(resource.name in image.topics for resource in image.configs if resource.type == 2)


def check_partition(partition: Partition, *, elr: bool) -> None:
    replicas = {*partition.replicas}
    assert partition.replicas
    assert len(replicas) == len(partition.replicas)
    assert len({*partition.isr}) == len(partition.isr)
    assert {*partition.isr} <= replicas
    assert partition.leader == NO_LEADER or partition.leader in partition.isr
    assert {*partition.adding} <= replicas
    assert {*partition.removing} <= replicas
    assert not {*partition.adding} & {*partition.removing}
    assert len(partition.directories) == len(partition.replicas)
    assert not {*partition.elr} & {*partition.isr}
    assert {*partition.elr} <= replicas
    assert partition.isr or elr
    assert elr or not (partition.elr or partition.last_known_elr)
    assert len(partition.last_known_elr) <= 1
    assert not (partition.has_leader and partition.last_known_elr)


def check_change(old: Partition, new: Partition) -> None:
    assert new.partition_epoch > old.partition_epoch
    assert new.leader_epoch >= old.leader_epoch
    assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
    assert {*old.replicas} <= {*new.replicas} or new.leader_epoch > old.leader_epoch


def check_leader(image: Image, partition: Partition) -> None:
    leader = image.brokers.get(partition.leader)
    assert leader is not None, "an unknown broker leads"
    assert not leader.fenced, "a fenced broker leads"


def every_led(image: Image) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number, partition)
        for _, topic in sorted(image.topics.items())
        for number, partition in enumerate(topic.partitions)
        if partition.has_leader
    ]


def finish(walk: Walk) -> None:
    """Let all brokers catch up; then the reassignments of all partitions with a leader must complete."""
    cluster = walk.cluster
    cluster.now_ms += 10 * SESSION_MS
    for broker in BROKERS:
        cluster.register(broker, log_dirs=[directory(broker, number) for number in (0, 1)])
        assert not cluster.beat(broker).is_fenced
    for topic_partition in every_led(cluster.image):
        partition, epochs = topic_partition.partition, cluster.epochs
        data = alter.PartitionData(
            partition_index=topic_partition.number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                alter.BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in partition.replicas
            ],
        )
        request = alter.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=epochs[partition.leader],
            topics=[alter.TopicData(topic_id=topic_partition.topic.id, partitions=[data])],
        )
        answer = cluster.apply(alter_partition(cluster.view, request)).topics[0].partitions[0]
        assert answer.error_code in (0, NewLeaderElected.code)
        assert cluster.partition(topic_partition.topic.name, topic_partition.number).isr
    listed = list_partition_reassignments(cluster.view, ListPartitionReassignmentsRequest(topics=None))
    for topic in listed.topics:
        for each in topic.partitions:
            assert not cluster.partition(topic.name, each.partition_index).has_leader
    check(cluster.image, cluster)


@pytest.mark.parametrize("chunk", range(8))
def test_random_walks_keep_the_metadata_consistent(chunk: int) -> None:
    for seed in range(chunk * SEEDS // 8, (chunk + 1) * SEEDS // 8):
        walk = Walk(seed)
        for number in range(STEPS):
            try:
                walk.step()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {number}") from error
        finish(walk)
