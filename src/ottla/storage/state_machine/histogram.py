"""Histograms with buckets of powers of two: recording a value takes two additions.

A histogram is a plain list, so that a hot path can add to it without a call:

    counts[value.bit_length()] += 1
    counts[SUM] += value

Bucket n counts values from 2^(n-1) to 2^n - 1, bucket 0 zeros. Values are below 2^63.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

SUM: Final = 64
"""The index of the sum of all values, after the buckets."""

Counts = list[int]


def new_counts() -> Counts:
    return [0] * (SUM + 1)


def record(counts: Counts, value: int) -> None:
    """Add a value, where the cost of a call does not matter."""
    counts[value.bit_length()] += 1
    counts[SUM] += value


def record_all(counts: Counts, values: Collection[int]) -> None:
    """Add many values, which is faster than one by one."""
    for bits, number in Counter(map(int.bit_length, values)).items():
        counts[bits] += number
    counts[SUM] += sum(values)


def total(counts: Sequence[int]) -> int:
    """Return the number of values."""
    return sum(counts[:SUM])


def merge(many: Iterable[Counts]) -> Counts:
    """Return the sum of several histograms."""
    return [sum(column) for column in zip(*many, strict=True)] or new_counts()


def since(now: Counts, before: Counts | None) -> Counts:
    """Return the values that were added after an earlier copy."""
    return now if before is None else [late - early for late, early in zip(now, before, strict=True)]


def fill_zeros(counts: Counts, number: int) -> Counts:
    """Add zeros up to a number of values, for a histogram in which zeros were not recorded."""
    counts[0] += number - total(counts)
    return counts


def quantile(counts: Sequence[int], share: float) -> float:
    """Return the value below which a share of all values is, interpolated within its bucket; NaN without values."""
    left = share * total(counts)
    for bits, count in enumerate(counts[:SUM]):
        if count and left <= count:
            low, high = (1 << bits) >> 1, 1 << bits if bits else 0
            return low + (high - low) * left / count
        left -= count
    return float("nan")


def cumulated(counts: Sequence[int], first_bits: int, last_bits: int) -> Iterator[tuple[int, int]]:
    """Yield the upper bounds 2^n of a range of buckets, with the number of values below each."""
    below = sum(counts[:first_bits])
    for bits in range(first_bits, last_bits + 1):
        below += counts[bits]
        yield 1 << bits, below
