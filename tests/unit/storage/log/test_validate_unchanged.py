"""The fast path accepts only batches that Python validation would store unchanged, with the same result."""

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import RecordError
from ottla.protocol.wire.batch import MAX_INT64, TRANSACTIONAL_BIT, TimestampType, assign_crc, read_header
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch
from ottla.protocol.wire.summary import inspect, survey
from ottla.storage.log import validation
from ottla.storage.log.producers import Origin
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.validation import TooHeavy, unchanged_rules, validate_batch, validate_unchanged

NOW = 1_700_000_000_000
DAY = 86_400_000
RULES = (1 << 20, MAX_INT64, MAX_INT64, False)
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
        rules = unchanged_rules(given)
        confirmed = None if rules is None else validate_unchanged(data, rules, NOW)
        if confirmed is not None:
            return bytes(data), confirmed
        stored, header = validate_batch(data, given, Origin.CLIENT, NOW, brief=True)
    except RecordError as error:
        return type(error), error.message, error.record_errors
    except TooHeavy:
        # Somebody else looks at it in a thread, and never by compiled code alone.
        return outcome_in_thread(data, given)
    return bytes(stored), header


def outcome_in_thread(data: bytearray, given: LogSettings) -> tuple[Any, ...]:
    try:
        stored, header = validate_batch(data, given, Origin.CLIENT, NOW)
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
        patch.setattr(validation, "inspect", None)
        assert outcome(bytearray(data), chosen) == found


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_a_plain_batch_is_confirmed_without_a_closer_look(compression: Compression) -> None:
    """Or the test above would compare Python with itself."""
    data = build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW + 1, None, None)], compression=compression)
    rules = unchanged_rules(LogSettings())
    assert rules is not None
    assert validate_unchanged(data, rules, NOW) == read_header(data)
    other = unchanged_rules(LogSettings(compact=True))
    assert other is not None
    assert validate_unchanged(data, other, NOW) is None


def test_bytes_that_are_no_batch_are_not_confirmed() -> None:
    assert inspect is not None
    for size in (0, 60, 61, 200):
        assert inspect(bytes(size), None, 0, NOW, RULES) is None
    with pytest.raises(TypeError):
        inspect(b"")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        inspect(bytes(61), None, 0, NOW, RULES[:3])  # type: ignore[arg-type]


@pytest.mark.parametrize("now", [NOW, 0, MAX_INT64])
def test_bounds_of_time_that_no_number_holds_are_none(now: int) -> None:
    data = build_batch([Record(0, NOW, b"k", b"v")])
    assert validate_unchanged(data, RULES, now) == read_header(data)


def view(*made: bytes | bytearray) -> list[memoryview]:
    return [memoryview(each) for each in made]


def test_batches_are_surveyed_together() -> None:
    assert survey is not None
    plain = build_batch([Record(0, NOW, b"k", b"v")])
    zipped = build_batch([Record(0, NOW, b"k", b"v")], compression=Compression.ZSTD)
    in_transaction = build_batch(
        [Record(0, NOW, b"k", b"v")], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    assert survey([]) == 0
    assert survey(view(plain)) == 0
    assert survey(view(plain, zipped)) == Compression.ZSTD
    assert survey(view(zipped, plain, in_transaction)) == Compression.ZSTD | TRANSACTIONAL_BIT
    old = bytearray(plain)
    old[16] = 1
    for odd in (b"", plain[:60], plain[:-1], plain + b"\0", plain + plain, old):
        assert survey(view(plain, odd)) is None
    assert survey([None]) is None
    assert survey([plain]) is None
    with pytest.raises(TypeError):
        survey(view(plain)[0])  # type: ignore[arg-type]
