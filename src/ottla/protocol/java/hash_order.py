"""The iteration order of Java's hash tables.

Kafka's assignors iterate over hash maps of members and topics, so the assignment depends on that order. Because Ottla
reproduces it, a group that moves between a coordinator of Kafka and one of Ottla keeps its assignment.
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
"""Kafka's timeline collections multiply a hash by this and take the highest bits."""


@lru_cache(maxsize=16384)
def string_hash(text: str) -> int:
    """Return Java's hash of a string as an unsigned 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK_32
    return value


def uuid_hash(uuid: bytes) -> int:
    """Return Java's hash of a UUID as an unsigned 32-bit number."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32) ^ (mixed & _MASK_32)


def number_hash(number: int) -> int:
    """Return Java's hash of a non-negative int."""
    return number


def grown_table_size(size: int) -> int:
    """Return how many buckets a HashMap has that started empty and received `size` entries one by one."""
    buckets = _MIN_BUCKETS
    while size > buckets * _LOAD:
        buckets *= 2
    return buckets


def copied_table_size(size: int) -> int:
    """Return how many buckets a HashSet has that was copied from a collection of `size` elements."""
    wanted = max(int(size / _LOAD) + 1, _MIN_BUCKETS)
    return 1 << (wanted - 1).bit_length()


def hash_order(items: Iterable[T], hash_of: Callable[[T], int], buckets: int) -> list[T]:
    """Return the items in the iteration order of a table with that many buckets; a bucket keeps insertion order."""
    mask = buckets - 1

    def bucket(item: T) -> int:
        value = hash_of(item)
        return (value ^ value >> 16) & mask

    return sorted(items, key=bucket)


def number_order(numbers: Collection[int]) -> Collection[int]:
    """Return sorted non-negative numbers in the iteration order of a HashSet copied from them."""
    buckets = copied_table_size(len(numbers))
    if not numbers or max(numbers) < buckets:
        return numbers
    return hash_order(numbers, number_hash, buckets)


def versioned_order(texts: Collection[str]) -> list[str]:
    """Return strings in the iteration order of a Kafka timeline collection to which they were added in sorted order.

    Within a slot, the string that was added last comes first.
    """
    slots = 2
    while len(texts) * _LOAD > slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(text: str) -> int:
        value = string_hash(text)
        signed = value - (1 << 32) if value >> 31 else value
        return ((signed * _FIBONACCI) & _MASK_64) >> shift

    return sorted(sorted(texts, reverse=True), key=slot)
