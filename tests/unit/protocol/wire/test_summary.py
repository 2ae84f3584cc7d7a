"""The summary of a batch's records is right, and compiled code and Python agree."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.wire import summary
from ottla.protocol.wire.batch import HEADER_BYTES, MAX_INT64, NO_TIMESTAMP, read_header
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch
from ottla.protocol.wire.records import read_records as decoded
from ottla.protocol.wire.summary import (
    compiled_scan,
    scan_part_in_python,
    shift_timestamps,
    summarize,
    summarize_in_python,
    summarize_pieces,
)

BASE = 1_700_000_000_000
small = st.none() | st.binary(max_size=200)
a_record = st.tuples(
    st.integers(-(1 << 40), 1 << 40),
    small,
    small,
    st.lists(st.tuples(st.text(max_size=5), small), max_size=3),
)
some_records = st.lists(a_record, min_size=1, max_size=20).map(
    lambda given: [
        Record(number, BASE + skew, key, value, headers) for number, (skew, key, value, headers) in enumerate(given)
    ]
)


def say(scan: object, data: bytes | bytearray, count: int, base: int = BASE) -> object:
    """Return the result of a scan, or None if it rejects the records."""
    assert callable(scan)
    try:
        return scan(data, HEADER_BYTES, count, base)
    except ProtocolError:
        return None


@given(some_records)
def test_a_summary_covers_all_records(given: list[Record]) -> None:
    data = build_batch(given)
    times = [record.timestamp for record in given]
    latest, earliest, keyless = summarize(data, HEADER_BYTES, len(given), given[0].timestamp)
    assert latest == max(NO_TIMESTAMP, *times)
    assert earliest == min((time for time in times if time != NO_TIMESTAMP), default=MAX_INT64)
    assert keyless == any(record.key is None for record in given)


@given(some_records, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=2), st.integers(-3, 3))
@example([Record(0, BASE, None, bytes(64))], [], 0)
def test_bytes_are_summarized_if_and_only_if_they_can_be_read(
    given: list[Record], flips: list[tuple[int, int]], cut: int
) -> None:
    """Records with changed, missing or extra bytes."""
    data, count = build_batch(given), len(given)
    for place, bits in flips:
        data[HEADER_BYTES + place % (len(data) - HEADER_BYTES)] ^= bits
    data = data + bytes(cut) if cut >= 0 else data[:cut]
    header = read_header(data)._replace(batch_length=len(data) - 12)
    summary_found = say(summarize_in_python, data, count, header.base_timestamp)
    try:
        readable = [record.offset for record in decoded(data, 0, header)] == list(range(count))
    except ProtocolError:
        readable = False
    assert (summary_found is not None) == readable
    if compiled_scan is not None:
        assert say(compiled_scan, data, count, header.base_timestamp) == summary_found


@pytest.mark.parametrize("base", [MAX_INT64, -MAX_INT64 - 1])
@pytest.mark.parametrize("skew", [-1, 0, 1])
def test_timestamps_stay_within_their_bounds(base: int, skew: int) -> None:
    data = build_batch([Record(0, BASE, None, None), Record(1, BASE + skew, None, None)])
    fits = -MAX_INT64 - 1 <= base + skew <= MAX_INT64
    assert (say(summarize, data, 2, base) is not None) == fits
    assert (say(summarize_in_python, data, 2, base) is not None) == fits


@pytest.mark.skipif(compiled_scan is None, reason="the package was built without its compiled part")
class TestCompiled:
    def test_large_batches_let_other_threads_run(self) -> None:
        assert compiled_scan is not None
        given = [Record(number, BASE, b"k", bytes(10_000)) for number in range(300)]
        assert compiled_scan(memoryview(build_batch(given)), HEADER_BYTES, 300, BASE) == (BASE, BASE, False)

    @pytest.mark.parametrize("start", [-1, 10_000])
    def test_a_start_outside_the_buffer_is_rejected(self, start: int) -> None:
        assert compiled_scan is not None
        assert compiled_scan(build_batch([Record(0, BASE, None, None)]), start, 1, BASE) is None

    def test_wrong_arguments_are_errors(self) -> None:
        assert compiled_scan is not None
        with pytest.raises(TypeError):
            compiled_scan(b"")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            compiled_scan("text", 0, 1, BASE)  # type: ignore[arg-type]
        with pytest.raises(OverflowError):
            compiled_scan(b"", 0, 1 << 64, BASE)
        with pytest.raises(BufferError):
            compiled_scan(memoryview(bytes(10))[::2], 0, 1, BASE)


def in_pieces(data: bytes | bytearray, size: int) -> Iterator[bytes]:
    return (bytes(data[start : start + size]) for start in range(0, len(data), size))


a_large_record = st.builds(
    lambda key, value, headers: (
        0,
        bytes(key),
        bytes(value),
        [(f"h{number}", bytes(number)) for number in range(headers)],
    ),
    st.sampled_from([0, 10, 300]),
    st.sampled_from([0, 200, 1000]),
    st.sampled_from([0, 3, 40]),
)
mixed_records = st.lists(a_record | a_large_record, min_size=1, max_size=12).map(
    lambda given: [
        Record(number, BASE + skew, key, value, headers) for number, (skew, key, value, headers) in enumerate(given)
    ]
)


@pytest.fixture(params=["compiled", "python"], scope="module")
def small_window(request: pytest.FixtureRequest) -> Iterator[None]:
    """Shrink the buffer to a few bytes, with compiled code and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "PIECE_BYTES", 40)
        if request.param == "python":
            patch.setattr(summary, "scan_part", scan_part_in_python)
            patch.setattr(summary, "skip_pairs", lambda data, start, stop, count: (start, count))
        yield


@pytest.mark.usefixtures("small_window")
class TestPieces:
    @given(
        mixed_records,
        st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=2),
        st.integers(-3, 3),
        st.integers(1, 100),
    )
    @example([Record(0, BASE, None, bytes(64))], [], 0, 1)
    def test_the_pieces_do_not_change_a_summary(
        self, given: list[Record], flips: list[tuple[int, int]], cut: int, size: int
    ) -> None:
        """For records with changed, missing or extra bytes, both have the same result or both raise."""
        data, count = build_batch(given)[HEADER_BYTES:], len(given)
        for place, bits in flips:
            data[place % len(data)] ^= bits
        data = data + bytes(cut) if cut >= 0 else data[:cut]
        base = given[0].timestamp
        try:
            whole: object = (tuple(summarize_in_python(data, 0, count, base)), len(data))
        except ProtocolError:
            whole = None
        try:
            summarized, total = summarize_pieces(in_pieces(data, size), count, base)
            parts: object = (tuple(summarized), total)
        except ProtocolError:
            parts = None
        assert parts == whole

    @given(mixed_records, st.integers(1, 100), st.integers(-5, 1 << 33))
    def test_shifted_timestamps_are_those_of_a_batch_with_another_base(
        self, given: list[Record], size: int, shift: int
    ) -> None:
        base = given[0].timestamp - shift
        data = build_batch(given, delete_horizon=base)[HEADER_BYTES:]  # which sets the base timestamp
        shifted = shift_timestamps(in_pieces(data, size), len(given), shift)
        assert b"".join(shifted) == build_batch(given)[HEADER_BYTES:]

    def test_a_record_with_very_many_headers_takes_little_time(self) -> None:
        if compiled_scan is None or summary.scan_part is scan_part_in_python:
            pytest.skip("Python takes its time")
        data = build_batch([Record(0, BASE, None, None, [("", None)] * 1_000_000)])[HEADER_BYTES:]
        begun = time.process_time()
        summarized, total = summarize_pieces(in_pieces(data, 1 << 16), 1, BASE)
        assert (tuple(summarized), total) == ((BASE, BASE, True), len(data))
        assert time.process_time() - begun < 1
