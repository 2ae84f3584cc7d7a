"""What a client knows of a cluster: its nodes, its topics, who leads what."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.client.addresses import Address
from ottla.protocol.messages.rpc.metadata import MetadataResponse, MetadataResponseTopic

TopicPartition: TypeAlias = tuple[str, int]

NO_LEADER = -1


class Node(NamedTuple):
    """A broker, as it wants to be reached."""

    id: int
    address: Address
    rack: str | None = None

    def __str__(self) -> str:
        return f"node {self.id} at {self.address}"


class Partition(NamedTuple):
    """One partition, and where its replicas are."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


class Topic(NamedTuple):
    """A topic and its partitions, by their numbers."""

    name: str
    id: bytes
    is_internal: bool
    partitions: Mapping[int, Partition]

    def with_leader(self, index: int, leader: int, leader_epoch: int) -> "Topic":
        known = self.partitions[index]
        changed = known._replace(leader=leader, leader_epoch=leader_epoch, error_code=0)
        return self._replace(partitions={**self.partitions, index: changed})

    def with_newer_leaders(self, known: "Topic") -> "Topic":
        """This, but for leaders that `known` has from a later epoch: brokers hear of elections at different times."""
        if known.id != self.id:
            return self
        topic = self
        for index, partition in self.partitions.items():
            before = known.partitions.get(index)
            if before is not None and before.leader_epoch > partition.leader_epoch:
                topic = topic.with_leader(index, before.leader, before.leader_epoch)
        return topic


def partition_label(topic: str, partition: int) -> str:
    """How messages name a partition."""
    return f"topic {topic!r}, partition {partition}"


def nodes_of(response: MetadataResponse) -> dict[int, Node]:
    return {each.node_id: Node(each.node_id, Address(each.host, each.port), each.rack) for each in response.brokers}


def endpoints_of(endpoints: list[Any]) -> dict[int, Node]:
    """The nodes that a Produce or Fetch response names next to its hints."""
    return {each.node_id: Node(each.node_id, Address(each.host, each.port), each.rack) for each in endpoints}


def topic_of(found: MetadataResponseTopic) -> Topic:
    partitions = {
        each.partition_index: Partition(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            each.error_code,
        )
        for each in sorted(found.partitions, key=lambda each: each.partition_index)
    }
    return Topic(found.name or "", found.topic_id, found.is_internal, partitions)
