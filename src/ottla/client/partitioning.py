"""Chooses the partition of a record as Kafka's producer does: by the hash of its key, or sticky without a key.

All producers must map a key to the same partition, so the hash is Kafka's (murmur2, seed 0x9747b28c).
"""

import random
import struct
from typing import Final

from ottla.client.metadata import NO_LEADER, Topic

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key as an unsigned 32-bit number."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _FACTOR & _WORD
        hashed = hashed * _FACTOR & _WORD ^ ((word ^ word >> 24) * _FACTOR & _WORD)
    if whole < size:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _WORD
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, whether or not the partition has a leader."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


class StickyPartitioner:
    """Chooses a partition for records without a key: one for the size of a batch, then another at random (KIP-794).

    Spreading single records would create many small batches instead of a few large ones.
    """

    __slots__ = ("_batch_bytes", "_left", "_partition", "_random")

    def __init__(self, batch_bytes: int, random_: random.Random) -> None:
        self._batch_bytes = batch_bytes
        self._random = random_
        self._partition = -1
        self._left = 0

    def choose(self, topic: Topic, size_bytes: int) -> int:
        """Return the partition for a record of this size."""
        if self._left <= 0 or self._partition not in topic.partitions:
            available = [number for number, partition in topic.partitions.items() if partition.leader != NO_LEADER]
            others = [number for number in available if number != self._partition]
            self._partition = self._random.choice(others or available or list(topic.partitions))
            self._left = self._batch_bytes
        self._left -= size_bytes
        return self._partition
