"""Merged state batches have the most advanced state of each record."""

import random
from itertools import pairwise

import pytest

from ottla.coordinators.share.batches import StateBatch, combine


@pytest.mark.parametrize("seed", range(200))
def test_the_most_advanced_state_of_a_record_wins(seed: int) -> None:
    chance = random.Random(seed)
    batches = [_any_batch(chance) for _ in range(chance.randrange(12))]
    start = chance.choice([-1, 0, 5, 20])
    found = combine(batches, start)
    expected: dict[int, tuple[int, int]] = {}
    for first, last, state, times in batches:
        for offset in range(max(first, start), last + 1):
            expected[offset] = max(expected.get(offset, (times, state)), (times, state))
    got = {offset: (times, state) for first, last, state, times in found for offset in range(first, last + 1)}
    assert got == expected
    if len(batches) > 1:
        for one, other in pairwise(found):
            assert one.last < other.first
            assert one.last + 1 < other.first or one[2:] != other[2:], "neighbours that are alike are one run"


def _any_batch(chance: random.Random) -> StateBatch:
    first = chance.randrange(40)
    return StateBatch(first, first + chance.randrange(10), chance.choice([0, 2, 4]), chance.randrange(1, 4))
