"""Offsets become tasks and micro-batches."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.connector.planning import bundle_ranges, limit_batch, ranges_between, split_ranges
from ottla.spark.connector.positions import from_json, to_json
from ottla.spark.connector.range_reader import Range

keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4))
spans = st.dictionaries(keys, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8)


@given(spans, st.none() | st.integers(1, 50), st.none() | st.integers(1, 300))
def test_ranges_cover_all_offsets_once(
    given_spans: dict[tuple[str, int], tuple[int, int]], least: int | None, most: int | None
) -> None:
    start = {key: begin for key, (begin, _) in given_spans.items()}
    stop = {key: begin + size for key, (begin, size) in given_spans.items()}
    parts = split_ranges(ranges_between(start, stop), min_ranges=least, max_records=most)
    total = sum(size for _, size in given_spans.values())
    assert sum(part.size for part in parts) == total
    assert all(part.size > 0 for part in parts)
    covered = {(part.topic, part.partition, offset) for part in parts for offset in range(part.start, part.stop)}
    assert len(covered) == total
    if most is not None:
        assert all(part.size <= most for part in parts)
    if least is not None:
        assert len(parts) >= min(least, total)


@given(spans, st.integers(1, 500))
def test_partitions_share_a_limit_and_all_advance(
    given_spans: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    start = {key: begin for key, (begin, _) in given_spans.items()}
    stop = {key: begin + size for key, (begin, size) in given_spans.items()}
    admitted = limit_batch(start, stop, most)
    assert all(start[key] <= admitted[key] <= stop[key] for key in start)
    waiting = [key for key in start if stop[key] > start[key]]
    assert all(admitted[key] > start[key] for key in waiting)
    assert sum(admitted[key] - start[key] for key in start) <= most + len(waiting)


def test_offsets_are_written_as_spark_writes_them() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 2): 3}
    assert to_json(offsets) == {"a": {"2": 3, "10": 2}, "b": {"0": 1}}
    assert from_json(to_json(offsets)) == offsets


def test_a_range_is_shown_with_its_offsets() -> None:
    assert str(Range("a", 1, 5, 8)) == "topic 'a', partition 1, offsets 5 to 7"


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [Range("t", number, 0, 300) for number in range(5)]
    large = Range("t", 9, 0, 5000)
    assert bundle_ranges([*small, large]) == [tuple(small[:3]), tuple(small[3:]), (large,)]
    assert bundle_ranges([large, *small[:2]]) == [(large,), tuple(small[:2])]
    assert bundle_ranges([]) == []
