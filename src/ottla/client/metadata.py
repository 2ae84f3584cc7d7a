"""A client's metadata of a cluster: nodes, topics, partitions and leaders."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.client.addresses import Address
from ottla.protocol.messages.rpc.metadata import MetadataResponseTopic

TopicPartition: TypeAlias = tuple[str, int]

NO_LEADER = -1


class Node(NamedTuple):
    """A broker with its advertised address."""

    id: int
    address: Address
    rack: str | None = None

    def __str__(self) -> str:
        return f"node {self.id} at {self.address}"


class Partition(NamedTuple):
    """A partition: its leader and its replicas."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


class Topic(NamedTuple):
    """A topic with its partitions by number."""

    name: str
    id: bytes
    is_internal: bool
    partitions: Mapping[int, Partition]

    def with_leader(self, index: int, leader: int, leader_epoch: int) -> "Topic":
        changed = self.partitions[index]._replace(leader=leader, leader_epoch=leader_epoch, error_code=0)
        return self._replace(partitions={**self.partitions, index: changed})

    def with_newer_leaders(self, previous: "Topic") -> "Topic":
        """Return the topic with the leaders of `previous` that have later epochs: this broker may lag behind."""
        if previous.id != self.id:
            return self
        topic = self
        for index, partition in self.partitions.items():
            before = previous.partitions.get(index)
            if before is not None and before.leader_epoch > partition.leader_epoch:
                topic = topic.with_leader(index, before.leader, before.leader_epoch)
        return topic


def partition_label(topic: str, partition: int) -> str:
    """Return the name of a partition for messages."""
    return f"topic {topic!r}, partition {partition}"


def nodes_by_id(endpoints: list[Any]) -> dict[int, Node]:
    """Return the nodes by id from the endpoints of a response."""
    return {node.node_id: Node(node.node_id, Address(node.host, node.port), node.rack) for node in endpoints}


def topic_of(entry: MetadataResponseTopic) -> Topic:
    partitions = {
        partition.partition_index: Partition(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            partition.error_code,
        )
        for partition in sorted(entry.partitions, key=lambda partition: partition.partition_index)
    }
    return Topic(entry.name or "", entry.topic_id, entry.is_internal, partitions)
