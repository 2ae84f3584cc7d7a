"""Which partition a record goes to, as Kafka's own producer chooses: by its key, or one for a while and then another.

The same key must meet the same partition whoever writes it, so that the hash is Kafka's (murmur2, seed 0x9747b28c).
"""

import random
import struct
from typing import Final

from ottla.client.metadata import NO_LEADER, Topic

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
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
    """The partition of a key, whether it has a leader now or not."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


class StickyPartitioner:
    """For records without a key: one partition for a batch's worth of bytes, then another at random (KIP-794).

    Spreading single records would make many small batches of a few large ones.
    """

    __slots__ = ("_batch_bytes", "_left", "_partition", "_random")

    def __init__(self, batch_bytes: int, random_: random.Random) -> None:
        self._batch_bytes = batch_bytes
        self._random = random_
        self._partition = -1
        self._left = 0

    def choose(self, topic: Topic, size_bytes: int) -> int:
        """The partition for a record of this size."""
        if self._left <= 0 or self._partition not in topic.partitions:
            led = [each.number for each in topic.partitions.values() if each.leader != NO_LEADER]
            others = [number for number in led if number != self._partition]
            self._partition = self._random.choice(others or led or list(topic.partitions))
            self._left = self._batch_bytes
        self._left -= size_bytes
        return self._partition
