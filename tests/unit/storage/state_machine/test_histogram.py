"""Histograms with buckets of powers of two, and their precision."""

import math
from random import Random

import pytest

from ottla.storage.state_machine.histogram import (
    SUM,
    cumulated,
    fill_zeros,
    merge,
    new_counts,
    quantile,
    record,
    since,
    total,
)


def test_a_value_is_counted_in_the_bucket_of_its_power_of_two() -> None:
    counts = new_counts()
    for value in (0, 1, 2, 3, 4, 7, 8):
        record(counts, value)
    assert counts[:5] == [1, 1, 2, 2, 1]
    assert counts[SUM] == 25
    assert total(counts) == 7


@pytest.mark.parametrize("share", [0.01, 0.5, 0.75, 0.99, 0.999, 1.0])
def test_a_quantile_is_within_the_bucket_of_the_true_one(share: float) -> None:
    random = Random(3)
    values = sorted(int(random.lognormvariate(12, 2)) for _ in range(10_000))
    counts = new_counts()
    for value in values:
        record(counts, value)
    true = values[max(math.ceil(share * len(values)) - 1, 0)]
    assert (1 << true.bit_length()) >> 1 <= quantile(counts, share) <= 1 << true.bit_length()


def test_without_values_there_is_no_quantile() -> None:
    assert math.isnan(quantile(new_counts(), 0.5))


def test_unrecorded_zeros_are_added() -> None:
    counts = new_counts()
    record(counts, 100)
    assert quantile(fill_zeros(counts, 1000), 0.99) == 0
    assert total(counts) == 1000


def test_values_added_since_a_copy() -> None:
    counts = new_counts()
    record(counts, 5)
    before = counts[:]
    record(counts, 9)
    assert (total(since(counts, before)), since(counts, before)[SUM]) == (1, 9)
    assert since(counts, None) == counts


def test_distributions_are_merged_by_adding() -> None:
    one, other = new_counts(), new_counts()
    record(one, 5)
    record(other, 6)
    assert (total(merge([one, other])), merge([one, other])[SUM]) == (2, 11)
    assert merge([]) == new_counts()


def test_cumulated_buckets_hold_all_that_is_smaller() -> None:
    counts = new_counts()
    for value in (0, 1, 5, 100):
        record(counts, value)
    assert list(cumulated(counts, 2, 4)) == [(4, 2), (8, 3), (16, 3)]
