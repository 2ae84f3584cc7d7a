"""The shards of one kind of coordinator: one for each partition of its topic that this broker leads."""

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
    """The shards on this broker, which follow the leadership in the metadata."""

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
        """The compression of record batches in shards that start from now on."""
        self.times = EventTimes()
        """The event times of all shards."""
        self._shards: dict[int, Shard[S]] = {}

    def __iter__(self) -> Iterator[Shard[S]]:
        return iter(list(self._shards.values()))

    def apply(self, changes: Changes) -> None:
        """Apply new metadata, after the replicas have."""
        indexes = self._close_moved_shards(changes)
        for shard in self:
            shard.publish(changes)
        for index in indexes:
            self._start_shard(index)
        self._runtime.completions.run()

    def close(self) -> None:
        """Close all shards because the broker stops."""
        for shard in self:
            shard.close(NotCoordinator("this broker is shutting down"))
        self._shards.clear()

    def partition_of(self, key: str) -> int | None:
        """Return the partition that stores a key; None if the topic does not exist yet."""
        topic = self._partitions.image.topic(self.topic)
        return partition_for(key, len(topic.partitions)) if topic is not None else None

    def shard_for(self, key: str) -> Shard[S]:
        """Return the shard of a key; raise NotCoordinator if it is not on this broker."""
        index = self.partition_of(key)
        if index is None:
            raise NotCoordinator(f"{self.topic} does not exist yet")
        return self.shard_at(index)

    def shard_at(self, index: int) -> Shard[S]:
        """Return the shard of a partition; raise NotCoordinator if it is not on this broker."""
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinator(f"this broker does not lead {self.topic}-{index}")
        return shard

    def _close_moved_shards(self, changes: Changes) -> list[int]:
        """Close the shards that moved away; return the partitions that need a new shard."""
        indexes = []
        for change in changes.partitions_of(self.topic):
            partition = self._partitions.find(self.topic, change.number)
            shard = self._shards.get(change.number)
            if partition is None or not partition.is_leader:
                if shard is not None:
                    del self._shards[change.number]
                    shard.close()
            elif shard is None or shard.epoch != partition.leader_epoch or shard.partition is not partition:
                indexes.append(change.number)
        return indexes

    def _start_shard(self, index: int) -> None:
        old_shard = self._shards.pop(index, None)
        if old_shard is not None:
            old_shard.close()
        shard = self._shards[index] = Shard(
            self.behaviour,
            self._partitions.get(self.topic, index),
            self._runtime,
            write_timeout_ms=self._write_timeout_ms,
            compression=self.compression,
            times=self.times,
        )
        shard.load()
