"""Distributions in buckets of powers of two: recording is two additions, whatever the value.

A distribution is a plain list, so that a hot path can add to it without a call:

    counts[value.bit_length()] += 1
    counts[SUM] += value

Bucket n holds values from 2^(n-1) up to 2^n - 1, the first one nought. Values stay below 2^63.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

SUM: Final = 64
"""Where the sum of all values is kept, behind the buckets."""

Counts = list[int]


def new_counts() -> Counts:
    return [0] * (SUM + 1)


def record(counts: Counts, value: int) -> None:
    """Add a value, where a call does not matter."""
    counts[value.bit_length()] += 1
    counts[SUM] += value


def record_all(counts: Counts, values: Collection[int]) -> None:
    """Add many values at once, which costs less than one after the other."""
    for bits, number in Counter(map(int.bit_length, values)).items():
        counts[bits] += number
    counts[SUM] += sum(values)


def total(counts: Sequence[int]) -> int:
    """How many values there were."""
    return sum(counts[:SUM])


def merge(many: Iterable[Counts]) -> Counts:
    """All of them as one."""
    return [sum(column) for column in zip(*many, strict=True)] or new_counts()


def since(now: Counts, before: Counts | None) -> Counts:
    """What came after an earlier copy was taken."""
    return now if before is None else [late - early for late, early in zip(now, before, strict=True)]


def fill_zeros(counts: Counts, number: int) -> Counts:
    """The distribution of so many values, of which only those that are not nought were recorded."""
    counts[0] += number - total(counts)
    return counts


def quantile(counts: Sequence[int], share: float) -> float:
    """The value below which a share of all values lies, as well as buckets can tell; not a number if there are none."""
    left = share * total(counts)
    for bits, count in enumerate(counts[:SUM]):
        if count and left <= count:
            low, high = (1 << bits) >> 1, 1 << bits if bits else 0
            return low + (high - low) * left / count
        left -= count
    return float("nan")


def cumulated(counts: Sequence[int], first_bits: int, last_bits: int) -> Iterator[tuple[int, int]]:
    """Upper ends of buckets and how many values lie below: 2^n for all n of the range."""
    below = sum(counts[:first_bits])
    for bits in range(first_bits, last_bits + 1):
        below += counts[bits]
        yield 1 << bits, below
