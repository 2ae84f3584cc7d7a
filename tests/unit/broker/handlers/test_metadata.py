"""Metadata and its kin: brokers that are fenced, on other listeners or without their disks."""

import asyncio

from ottla.protocol.errors import LeaderNotAvailable, ListenerNotFound, ReplicaNotAvailable
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from ottla.replication.unavailable_leaders import DECIDED_WITHIN_MS, NAMED_MS, WAIT_S
from tests.support.broker import BROKER_EPOCH, Broker


def partition(broker: Broker, version: int, topic: str = "t") -> MetadataResponsePartition:
    topics = broker.ask(MetadataRequest(topics=None if version else []), version).topics
    found: MetadataResponsePartition = next(each for each in topics if each.name == topic).partitions[0]
    return found


def fence(broker: Broker, other: int) -> None:
    broker.apply(BrokerRegistrationChangeRecord(broker_id=other, broker_epoch=BROKER_EPOCH, fenced=1))


def test_fenced_brokers_are_offline_and_not_listed(broker: Broker) -> None:
    broker.register(2, fenced=True)
    broker.create_topic("t", replicas=(1, 2))
    response = broker.ask(MetadataRequest(topics=None), 13)
    assert [each.node_id for each in response.brokers] == [1]
    assert response.controller_id == 1
    described = partition(broker, 13)
    assert (described.error_code, described.leader_id, described.replica_nodes, described.offline_replicas) == (
        0,
        1,
        [1, 2],
        [2],
    )


def test_a_broker_that_was_just_fenced_is_listed_without_partitions(broker: Broker) -> None:
    """librdkafka would drop the partitions of a broker that is not listed, even if they have another leader."""
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    fence(broker, 2)
    response = broker.ask(MetadataRequest(topics=None), 13)
    assert [each.node_id for each in response.brokers] == [1, 2]
    assert (response.controller_id, partition(broker, 13).offline_replicas) == (1, [2])
    kafkas = broker.ask(MetadataRequest(topics=None), 13, software="apache-kafka-java")
    assert [each.node_id for each in kafkas.brokers] == [1], "Kafka's clients need no such help"
    broker.clock.pass_time(NAMED_MS)
    assert [each.node_id for each in broker.ask(MetadataRequest(topics=None), 13).brokers] == [1]


def test_a_request_for_a_failed_leader_waits_for_the_next_one(broker: Broker) -> None:
    lose_leader(broker)
    asked = broker.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert not asked.outcome
    assert broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="other")]), 12).topics[0].error_code == 0
    assert broker.ask(MetadataRequest(topics=[]), 12).brokers, "a request for brokers only does not wait either"
    topic_id = broker.image.topics["t"].id
    broker.apply(
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=BROKER_EPOCH, fenced=1),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, isr=[1]),
    )
    broker.settle()
    assert [each.node_id for each in asked.response.brokers] == [1, 2]
    assert [each.leader_id for each in asked.response.topics[0].partitions] == [1]
    assert partition(broker, 13).leader_id == 1, "and nobody waits any more"


def test_a_failed_leader_is_not_named_if_the_election_takes_long(broker: Broker) -> None:
    lose_leader(broker)
    asked = broker.send(MetadataRequest(topics=None), 13)
    broker.loop.run_until_complete(asyncio.sleep(WAIT_S * 1.2))
    (described,) = next(each for each in asked.response.topics if each.name == "t").partitions
    assert (described.error_code, described.leader_id, described.isr_nodes) == (LeaderNotAvailable.code, -1, [1, 2])
    broker.clock.pass_time(DECIDED_WITHIN_MS)
    assert partition(broker, 13).leader_id == -1, "nobody waits any more"


def test_a_leader_that_closed_a_connection_and_still_listens_is_named(broker: Broker) -> None:
    lose_leader(broker, is_dead=False)
    broker.node.unavailable_leaders.on_connection_lost(2)
    broker.disconnected_brokers.clear()
    assert partition(broker, 13).leader_id == 2


def test_a_leader_that_returns_before_it_is_fenced_is_named_again(broker: Broker) -> None:
    lose_leader(broker)
    asked = broker.send(MetadataRequest(topics=None), 13)
    assert not asked.outcome
    broker.unreachable_hosts.clear()
    broker.loop.run_until_complete(asyncio.sleep(WAIT_S * 2))
    assert asked.outcome
    assert partition(broker, 13).leader_id == 2


def lose_leader(broker: Broker, *, is_dead: bool = True) -> None:
    """Broker 2 leads a topic, another one does not concern it, and it hangs up."""
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2), leader=2)
    broker.create_topic("other")
    if is_dead:
        broker.unreachable_hosts.add("host2")
    broker.disconnected_brokers.append(2)


def test_v0_leaves_out_unreachable_replicas_with_an_error(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    fence(broker, 2)
    described = partition(broker, 0)
    assert (described.error_code, described.replica_nodes, described.isr_nodes) == (ReplicaNotAvailable.code, [1], [1])
    assert partition(broker, 1).error_code == 0


def test_a_leader_that_failed_or_is_on_another_listener(broker: Broker) -> None:
    broker.register(2, listener="INTERNAL")
    broker.create_topic("t", replicas=(1, 2), leader=2)
    for version in range(14):
        code = (ListenerNotFound if version >= 6 else LeaderNotAvailable).code
        described = partition(broker, version)
        assert (described.error_code, described.leader_id) == (code, -1)
    assert partition(broker, 13).offline_replicas == [2]
    broker.apply(UnregisterBrokerRecord(broker_id=2, broker_epoch=BROKER_EPOCH))
    assert partition(broker, 13).error_code == LeaderNotAvailable.code


def test_replicas_in_lost_directories_are_offline(broker: Broker) -> None:
    broker.create_topic("t")
    known = broker.logs.directories[0].meta.directory_id
    assert known is not None
    for directory, offline in ((known, []), (b"\xee" * 16, [1]), (bytes(15) + b"\2", [1]), (bytes(15) + b"\1", [])):
        broker.change("t", directories=[directory])
        assert partition(broker, 13).offline_replicas == offline


def test_eligible_leaders_are_described(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    broker.change("t", isr=[1], eligible_leader_replicas=[2], last_known_elr=[1])
    (topic,) = broker.ask(DescribeTopicPartitionsRequest(topics=[]), 0).topics
    described = topic.partitions[0]
    assert (described.isr_nodes, described.eligible_leader_replicas, described.last_known_elr) == ([1], [2], [1])
    assert (described.leader_id, described.leader_epoch, described.error_code) == (1, 0, 0)


def test_describe_cluster_has_fenced_brokers_on_request(broker: Broker) -> None:
    broker.register(2)
    broker.register(3, listener="INTERNAL")
    fence(broker, 2)
    described = broker.ask(DescribeClusterRequest(), 2)
    assert ([each.broker_id for each in described.brokers], described.controller_id) == ([1], 1)
    described = broker.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(each.broker_id, each.is_fenced) for each in described.brokers] == [(1, False), (2, True)]
    assert described.controller_id == 1
