"""Where a client should go instead: the leader of a partition, and how to reach it (KIP-951)."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ottla.metadata.image.image import Image

M = TypeVar("M", covariant=True)


class MakesHint(Protocol[M]):
    """A message's own struct of a leader and its epoch."""

    def __call__(self, *, leader_id: int, leader_epoch: int) -> M: ...


class MakesEndpoint(Protocol[M]):
    """A message's own struct of a node's address."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> M: ...


def leader_of(image: Image, topic: str, index: int, make: MakesHint[M]) -> M | None:
    """Who leads a partition, as far as this broker knows."""
    partition = image.partition(topic, index)
    if partition is None:
        return None
    return make(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def endpoints_of(image: Image, leaders: Iterable[int], listener: str, make: MakesEndpoint[M]) -> list[M]:
    """How to reach the leaders that were hinted at, each once."""
    found = []
    for leader in dict.fromkeys(leaders):
        endpoint = image.endpoint(leader, listener)
        broker = image.broker(leader)
        if endpoint is not None and broker is not None:
            found.append(make(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    return found
