"""The coordinators of one kind on this broker: one for each partition of their topic that it leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from ottla.coordinators.runtime.behaviour import Behaviour
from ottla.coordinators.runtime.shard import Shard
from ottla.metadata.image.changes import Changes
from ottla.protocol.errors import NotCoordinator
from ottla.protocol.java.hash_order import string_hash
from ottla.protocol.wire.compression import Compression
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.times import EventTimes

S = TypeVar("S")


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of the coordinator's topic that stores a key, as every node computes it."""
    value = string_hash(key)
    # The absolute value of the signed hash, as Kafka's `Utils.abs` computes it: the smallest int32 becomes 0.
    return (min(value, (1 << 32) - value) & 0x7FFF_FFFF) % partition_count


class Shards(Generic[S]):
    """The coordinators here, as the metadata say who leads what."""

    def __init__(
        self,
        behaviour: Behaviour[S],
        partitions: Partitions,
        runtime: Runtime,
        *,
        write_timeout_ms: int,
        compression: Compression = Compression.NONE,
    ) -> None:
        self.behaviour = behaviour
        self.topic = behaviour.topic
        self._partitions = partitions
        self._runtime = runtime
        self._write_timeout_ms = write_timeout_ms
        self.compression = compression
        """How batches of records are compressed, of partitions that are led from now on."""
        self.times = EventTimes()
        """How long events take on all of them."""
        self._shards: dict[int, Shard[S]] = {}

    def __iter__(self) -> Iterator[Shard[S]]:
        return iter(list(self._shards.values()))

    def apply(self, changes: Changes) -> None:
        """Act on new metadata, after the replicas did."""
        led = self._led(changes)
        for shard in self:
            shard.publish(changes)
        for index in led:
            self._lead(index)
        self._runtime.completions.run()

    def close(self) -> None:
        """Give all up, for the broker stops."""
        for shard in self:
            shard.close(NotCoordinator("this broker stops"))
        self._shards.clear()

    def partition_of(self, key: str) -> int | None:
        """The partition that keeps what belongs to a key; None before the topic was made."""
        topic = self._partitions.image.topic(self.topic)
        return partition_for(key, len(topic.partitions)) if topic is not None else None

    def of(self, key: str) -> Shard[S]:
        """The coordinator of a key; raises NotCoordinator if it is not here."""
        index = self.partition_of(key)
        if index is None:
            raise NotCoordinator(f"{self.topic} does not exist yet")
        return self.at(index)

    def at(self, index: int) -> Shard[S]:
        """The coordinator on a partition; raises NotCoordinator if it is not here."""
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinator(f"{self.topic}-{index} is not led by this broker")
        return shard

    def _led(self, changes: Changes) -> list[int]:
        """Which partitions of the topic changed; those that are led elsewhere by now are given up."""
        led = []
        for change in changes.partitions_of(self.topic):
            partition = self._partitions.find(self.topic, change.number)
            shard = self._shards.get(change.number)
            if partition is None or not partition.is_leader:
                if shard is not None:
                    del self._shards[change.number]
                    shard.close()
            elif shard is None or shard.epoch != partition.leader_epoch or shard.partition is not partition:
                led.append(change.number)
        return led

    def _lead(self, index: int) -> None:
        known = self._shards.pop(index, None)
        if known is not None:
            known.close()
        shard = self._shards[index] = Shard(
            self.behaviour,
            self._partitions.get(self.topic, index),
            self._runtime,
            write_timeout_ms=self._write_timeout_ms,
            compression=self.compression,
            times=self.times,
        )
        shard.load()
