"""The order in which Java's hash tables give back what was put into them.

Kafka's assignors walk over hash maps of members and topics, so that which member gets which partition depends on that
order. Members that get the same partitions from either coordinator need not move any when groups change places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

_MIN_BUCKETS: Final = 16
_LOAD: Final = 0.75
_MASK_32: Final = 0xFFFF_FFFF
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_FIBONACCI: Final = -7046029254386353131
"""By which Kafka's own tables (those that keep older versions) multiply a hash, to take its highest bits."""


@lru_cache(maxsize=16384)
def text_hash(text: str) -> int:
    """Java's hash of a string, as 32 unsigned bits."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK_32
    return value


def uuid_hash(uuid: bytes) -> int:
    """Java's hash of a UUID, as 32 unsigned bits."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32) ^ (mixed & _MASK_32)


def number_hash(number: int) -> int:
    """Java's hash of a number from 0 on."""
    return number


def grown(size: int) -> int:
    """The buckets of a map that began empty and was filled one by one."""
    buckets = _MIN_BUCKETS
    while size > buckets * _LOAD:
        buckets *= 2
    return buckets


def copied(size: int) -> int:
    """The buckets of a set that was made from a collection."""
    wanted = max(int(size / _LOAD) + 1, _MIN_BUCKETS)
    return 1 << (wanted - 1).bit_length()


def hash_order(items: Iterable[T], hash_of: Callable[[T], int], buckets: int) -> list[T]:
    """Items as a table of so many buckets gives them back; within a bucket they stay as they came."""
    mask = buckets - 1

    def bucket(item: T) -> int:
        value = hash_of(item)
        return (value ^ value >> 16) & mask

    return sorted(items, key=bucket)


def number_order(numbers: Collection[int]) -> Collection[int]:
    """Sorted numbers from 0 on, as a set made from them gives them back."""
    buckets = copied(len(numbers))
    if not numbers or max(numbers) < buckets:
        return numbers
    return hash_order(numbers, number_hash, buckets)


def versioned_order(texts: Collection[str]) -> list[str]:
    """Texts as one of Kafka's own tables gives them back, if it began empty and was filled one by one, in order.

    Of two in one slot the later one comes first.
    """
    slots = 2
    while len(texts) * _LOAD > slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(text: str) -> int:
        value = text_hash(text)
        signed = value - (1 << 32) if value >> 31 else value
        return ((signed * _FIBONACCI) & _MASK_64) >> shift

    return sorted(sorted(texts, reverse=True), key=slot)
