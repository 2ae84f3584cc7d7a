"""Compiled code confirms batches only where Python would take them as they are, and says the same of them."""

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.errors import RecordError
from ottla.log import validate
from ottla.log.producers import Origin
from ottla.log.settings import LogSettings
from ottla.log.validate import TooHeavy, accept
from ottla.wire.batch import MAX_INT64, TimestampType, assign_crc
from ottla.wire.compression import Compression
from ottla.wire.records import Record, build_batch
from ottla.wire.summary import inspect

NOW = 1_700_000_000_000
DAY = 86_400_000
FIELDS = {  # of the header, and how they are packed
    0: ">q", 8: ">i", 12: ">i", 16: ">b", 17: ">I", 21: ">h", 23: ">i", 27: ">q", 35: ">q", 43: ">q", 51: ">h",
    53: ">i", 57: ">i",
}  # fmt: skip

pytestmark = pytest.mark.skipif(inspect is None, reason="the package was built without its compiled part")

small = st.none() | st.binary(max_size=40)
some_records = st.lists(
    st.tuples(st.sampled_from([-2 * DAY, -1, 0, 0, 5, 2 * DAY]), small, small), min_size=1, max_size=9
)
some_settings = st.builds(
    LogSettings,
    compact=st.booleans(),
    compression=st.sampled_from([None, None, None, Compression.NONE, Compression.LZ4]),
    max_message_bytes=st.sampled_from([1_048_588, 1_048_588, 150]),
    message_timestamp_type=st.sampled_from([TimestampType.CREATE, TimestampType.CREATE, TimestampType.LOG_APPEND]),
    message_timestamp_before_max_ms=st.sampled_from([MAX_INT64, DAY]),
    message_timestamp_after_max_ms=st.sampled_from([MAX_INT64, DAY]),
)
numbers = st.integers(-3, 70) | st.sampled_from([127, -128, 0x7FFF, 0x7FFF_FFFF, -0x8000_0000, MAX_INT64, NOW])


def outcome(data: bytearray, given: LogSettings) -> tuple[Any, ...]:
    """What becomes of a batch: as it is stored, its header; or the kind of error with the records that are at fault."""
    try:
        stored, header = accept(data, given, Origin.CLIENT, NOW, brief=True)
    except RecordError as error:
        return type(error), error.message, error.record_errors
    except TooHeavy:
        # Somebody else looks at it in a thread, and never by compiled code alone.
        return outcome_in_thread(data, given)
    return bytes(stored), header


def outcome_in_thread(data: bytearray, given: LogSettings) -> tuple[Any, ...]:
    try:
        stored, header = accept(data, given, Origin.CLIENT, NOW)
    except RecordError as error:
        return type(error), error.message, error.record_errors
    return bytes(stored), header


@settings(max_examples=400)
@given(
    some_records,
    some_settings,
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD, Compression.GZIP]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(sorted(FIELDS)), numbers), max_size=2),
    st.integers(-2, 2),
    st.booleans(),
)
@example([(0, None, b"v")], LogSettings(), Compression.NONE, False, [], 0, True)
@example([(0, None, b"v")], LogSettings(), Compression.ZSTD, True, [], 0, True)
@example([(0, b"k", b"v")], LogSettings(compact=True), Compression.LZ4, True, [(43, -1)], 0, True)
def test_compiled_code_and_python_agree_on_every_batch(
    given: list[tuple[int, bytes | None, bytes | None]],
    chosen: LogSettings,
    compression: Compression,
    transactional: bool,
    changes: list[tuple[int, int]],
    cut: int,
    right_crc: bool,
) -> None:
    made = [Record(number, NOW + skew, key, value) for number, (skew, key, value) in enumerate(given)]
    data = build_batch(
        made,
        compression=compression,
        transactional=transactional,
        producer_id=7 if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
    )
    for place, value in changes:
        size = struct.calcsize(FIELDS[place])
        data[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
    data = data + bytes(cut) if cut >= 0 else data[:cut]
    if right_crc:
        assign_crc(data, 0, len(data))
    found = outcome(bytearray(data), chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "inspect", None)
        assert outcome(bytearray(data), chosen) == found


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_a_plain_batch_is_confirmed_without_a_closer_look(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test above would compare Python with itself."""
    monkeypatch.setattr(validate, "read_header", None)
    data = build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW + 1, None, None)], compression=compression)
    stored, header = accept(data, LogSettings(), Origin.CLIENT, NOW, brief=True)
    assert stored is data
    assert header.record_count == 2
    assert header.max_timestamp == NOW + 1


def test_bytes_that_are_no_batch_are_not_confirmed() -> None:
    assert inspect is not None
    for size in (0, 60, 61, 200):
        assert inspect(bytes(size), None, 0, 1 << 20, 0, MAX_INT64, False) is None
    with pytest.raises(TypeError):
        inspect(b"")  # type: ignore[call-arg]
