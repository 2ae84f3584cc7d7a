"""A client's metadata takes newer leaders and never goes back to older ones."""

from ottla.client.addresses import Address
from ottla.client.cluster import Cluster
from ottla.client.metadata import Node, Partition, Topic
from ottla.client.retries import Deadline, is_transient
from ottla.protocol.errors import ElectionNotNeeded, NetworkFailed, NotLeader, UnknownTopicOrPartition

ID = b"i" * 16


def topic(leader: int, epoch: int, *, id_: bytes = ID) -> Topic:
    return Topic("t", id_, False, {0: Partition(0, leader, epoch)})


def cluster_with(topic: Topic) -> Cluster:
    cluster = Cluster("localhost")
    cluster.nodes = {1: Node(1, Address("a", 1))}
    cluster._topics["t"] = topic, Deadline(60)
    return cluster


def leader(cluster: Cluster) -> tuple[int, int]:
    cached = cluster.cached_topic("t")
    assert cached is not None
    return cached.partitions[0].leader, cached.partitions[0].leader_epoch


def test_a_hint_of_a_later_epoch_is_applied_with_its_node() -> None:
    cluster = cluster_with(topic(1, 5))
    assert cluster.note_leader("t", 0, 2, 6, {2: Node(2, Address("b", 2))})
    assert leader(cluster) == (2, 6)
    assert cluster.nodes[2].address == ("b", 2)


def test_hints_that_are_old_or_of_unknown_nodes_are_ignored() -> None:
    cluster = cluster_with(topic(1, 5))
    assert not cluster.note_leader("t", 0, 1, 5, {})
    assert not cluster.note_leader("t", 0, 3, 6, {})
    assert not cluster.note_leader("t", 0, -1, 6, {})
    assert not cluster.note_leader("t", 9, 1, 6, {})
    assert not cluster.note_leader("other", 0, 1, 6, {})
    assert leader(cluster) == (1, 5)


def test_a_lagging_broker_does_not_restore_an_old_leader() -> None:
    assert topic(1, 4).with_newer_leaders(topic(2, 5)).partitions[0].leader == 2
    assert topic(1, 6).with_newer_leaders(topic(2, 5)).partitions[0].leader == 1
    assert topic(1, 0, id_=b"j" * 16).with_newer_leaders(topic(2, 5)).partitions[0].leader == 1  # recreated


def test_a_forgotten_topic_is_looked_up_again() -> None:
    cluster = cluster_with(topic(1, 5))
    cluster.forget("t")
    assert cluster.cached_topic("t") is None


def test_only_transient_errors_are_retried() -> None:
    assert is_transient(NetworkFailed())
    assert is_transient(NotLeader())
    assert not is_transient(UnknownTopicOrPartition())
    assert not is_transient(ElectionNotNeeded())
