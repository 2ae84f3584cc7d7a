"""How offsets become tasks and micro-batches."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.connector.fetching import Range
from ottla.spark.connector.planning import bundle, limit, ranges_between, split
from ottla.spark.connector.positions import from_json, to_json

keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4))
spans = st.dictionaries(keys, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8)


@given(spans, st.none() | st.integers(1, 50), st.none() | st.integers(1, 300))
def test_ranges_cover_all_offsets_once(
    given_spans: dict[tuple[str, int], tuple[int, int]], least: int | None, most: int | None
) -> None:
    start = {key: begin for key, (begin, _) in given_spans.items()}
    stop = {key: begin + size for key, (begin, size) in given_spans.items()}
    parts = split(ranges_between(start, stop), least=least, most_records=most)
    total = sum(size for _, size in given_spans.values())
    assert sum(each.size for each in parts) == total
    assert all(each.size > 0 for each in parts)
    covered = {(each.topic, each.partition, offset) for each in parts for offset in range(each.start, each.stop)}
    assert len(covered) == total
    if most is not None:
        assert all(each.size <= most for each in parts)
    if least is not None:
        assert len(parts) >= min(least, total)


@given(spans, st.integers(1, 500))
def test_a_limit_is_shared_out_and_everybody_moves(
    given_spans: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    start = {key: begin for key, (begin, _) in given_spans.items()}
    stop = {key: begin + size for key, (begin, size) in given_spans.items()}
    admitted = limit(start, stop, most)
    assert all(start[key] <= admitted[key] <= stop[key] for key in start)
    waiting = [key for key in start if stop[key] > start[key]]
    assert all(admitted[key] > start[key] for key in waiting)
    assert sum(admitted[key] - start[key] for key in start) <= most + len(waiting)


def test_offsets_are_written_as_spark_writes_them() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 2): 3}
    assert to_json(offsets) == {"a": {"2": 3, "10": 2}, "b": {"0": 1}}
    assert from_json(to_json(offsets)) == offsets


def test_a_range_says_what_it_is() -> None:
    assert str(Range("a", 1, 5, 8)) == "topic 'a', partition 1, offsets 5 to 7"


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [Range("t", number, 0, 300) for number in range(5)]
    large = Range("t", 9, 0, 5000)
    assert bundle([*small, large]) == [tuple(small[:3]), tuple(small[3:]), (large,)]
    assert bundle([large, *small[:2]]) == [(large,), tuple(small[:2])]
    assert bundle([]) == []
