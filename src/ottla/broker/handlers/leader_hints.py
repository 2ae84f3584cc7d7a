"""The current leader of a partition and its address, for clients that asked another broker (KIP-951)."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ottla.metadata.image.image import Image

M = TypeVar("M", covariant=True)


class LeaderStruct(Protocol[M]):
    """A response's struct of a leader and its epoch."""

    def __call__(self, *, leader_id: int, leader_epoch: int) -> M: ...


class NodeStruct(Protocol[M]):
    """A response's struct of a node's address."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> M: ...


def leader_of(image: Image, topic: str, index: int, make: LeaderStruct[M]) -> M | None:
    """Return the leader of a partition, as far as this broker knows; None if it does not know the partition."""
    partition = image.partition(topic, index)
    if partition is None:
        return None
    return make(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def endpoints_of(image: Image, leaders: Iterable[int], listener: str, make: NodeStruct[M]) -> list[M]:
    """Return the addresses of leaders, each once."""
    nodes = []
    for leader in dict.fromkeys(leaders):
        endpoint = image.endpoint(leader, listener)
        broker = image.broker(leader)
        if endpoint is not None and broker is not None:
            nodes.append(make(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    return nodes
