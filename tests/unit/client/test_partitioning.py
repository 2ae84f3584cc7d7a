"""Keys map to the same partitions as in Kafka's producer; records without a key are sticky."""

import random
from itertools import pairwise

import pytest

from ottla.client.metadata import Partition, Topic
from ottla.client.partitioning import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From Kafka's UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFF_FFFF
    assert partition_for_key(key, 7) == (hashed & 0x7FFF_FFFF) % 7


def make_topic(*leaders: int) -> Topic:
    partitions = {number: Partition(number, leader, 0) for number, leader in enumerate(leaders)}
    return Topic("t", bytes(16), False, partitions)


def test_records_without_a_key_stay_on_a_partition_for_one_batch() -> None:
    sticky, topic = StickyPartitioner(100, random.Random(1)), make_topic(1, 1, 1)
    chosen = [sticky.choose(topic, 50) for _ in range(20)]
    pairs = list(zip(chosen[::2], chosen[1::2], strict=True))
    assert all(one == other for one, other in pairs)
    assert all(before[0] != after[0] for before, after in pairwise(pairs))
    assert set(chosen) == {0, 1, 2}


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    sticky, topic = StickyPartitioner(1, random.Random(1)), make_topic(-1, 4, -1)
    assert {sticky.choose(topic, 10) for _ in range(20)} == {1}
    assert StickyPartitioner(1, random.Random(1)).choose(make_topic(-1, -1), 10) in (0, 1)
