"""The batches that a leader rejects, and its changes to batches before they are stored."""

import pytest

from ottla.protocol.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordError
from ottla.protocol.wire import compression as codecs
from ottla.protocol.wire import summary
from ottla.protocol.wire.batch import HEADER_BYTES, TimestampType, assign_crc, read_header, set_max_timestamp
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch, read_records, replace_payload
from ottla.storage.log import validation
from ottla.storage.log.producers import Origin
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.validation import validate_batch
from tests.support.log_workbench import NOW, LogWorkbench, Producer, batch, check_consistent, stored_batches

DAY = 86_400_000


def refused(data: bytearray, settings: LogSettings | None = None, origin: Origin = Origin.CLIENT) -> RecordError:
    bench = LogWorkbench(settings or LogSettings())
    with pytest.raises(RecordError) as raised:
        bench.append(data, origin=origin)
    assert bench.log.log_end_offset == bench.log.size == 0
    return raised.value


class TestBytes:
    def test_a_flipped_bit_is_a_corrupt_message(self) -> None:
        for position in (21, 30, 62, -1):
            data = batch(b"a", b"b")
            data[position] ^= 1
            assert isinstance(refused(data), CorruptMessage)

    @pytest.mark.parametrize("size", [0, 11, 60])
    def test_less_than_a_header_is_a_corrupt_message(self, size: int) -> None:
        assert isinstance(refused(batch(b"a")[:size]), CorruptMessage)

    def test_one_batch_at_a_time(self) -> None:
        assert isinstance(refused(batch(b"a") + batch(b"b")), InvalidRecord)

    def test_an_incomplete_batch_is_rejected(self) -> None:
        refused(batch(bytes(100))[:-1])

    def test_the_largest_batch_is_taken_and_one_byte_more_is_not(self) -> None:
        data = batch(bytes(500))
        settings = LogSettings(max_message_bytes=len(data))
        LogWorkbench(settings).append(bytearray(data))
        too_large = LogSettings(max_message_bytes=len(data) - 1)
        for origin in (Origin.CLIENT, Origin.COORDINATOR):
            assert isinstance(refused(bytearray(data), too_large, origin), MessageTooLarge)

    def test_a_control_batch_is_for_brokers_only(self) -> None:
        data = build_batch([Record(0, NOW, b"\0\0\0\0", b"")], control=True)
        assert isinstance(refused(data), InvalidRecord)

    def test_an_old_format_is_refused(self) -> None:
        data = batch(b"a")
        data[16] = 1
        assert isinstance(refused(data), InvalidRecord)


class TestTimestamps:
    SETTINGS = LogSettings(message_timestamp_before_max_ms=DAY, message_timestamp_after_max_ms=1000)

    def test_bad_ones_are_named_by_their_place(self) -> None:
        times = [NOW, NOW - DAY - 1, NOW - DAY, NOW + 1001, NOW + 1000]
        error = refused(batch(*[b"v"] * 5, timestamps=times), self.SETTINGS)
        assert isinstance(error, InvalidTimestamp)
        assert [number for number, _ in error.record_errors] == [1, 3]

    @pytest.mark.parametrize("compression", Compression)
    def test_compressed_records_are_looked_at_too(self, compression: Compression) -> None:
        error = refused(batch(b"a", b"b", timestamps=[NOW, NOW + 9999], compression=compression), self.SETTINGS)
        assert [number for number, _ in error.record_errors] == [1]

    def test_too_late_is_refused_though_early_ones_may_be(self) -> None:
        settings = LogSettings(message_timestamp_after_max_ms=1000)
        LogWorkbench(settings).append(batch(b"a", timestamps=1))
        assert isinstance(refused(batch(b"a", timestamps=NOW + 1001), settings), InvalidTimestamp)

    def test_no_timestamp_is_never_bad(self) -> None:
        LogWorkbench(self.SETTINGS).append(batch(b"a", timestamps=-1))

    def test_with_log_append_time_the_producers_clock_does_not_matter(self) -> None:
        settings = LogSettings(
            message_timestamp_type=TimestampType.LOG_APPEND,
            message_timestamp_before_max_ms=1,
            message_timestamp_after_max_ms=1,
        )
        bench = LogWorkbench(settings)
        bench.append(batch(b"a", b"b", timestamps=[5, NOW * 2]))
        (found,) = stored_batches(bench.log)
        assert [record.timestamp for record in read_records(found.data)] == [NOW, NOW]

    def test_a_producer_may_not_claim_the_brokers_clock(self) -> None:
        data = batch(b"a")
        set_max_timestamp(data, 0, NOW)
        assert isinstance(refused(data), InvalidTimestamp)


class TestKeys:
    def test_a_compacted_topic_names_the_records_without_a_key(self) -> None:
        given = [Record(number, NOW, None if number % 2 else b"k", b"v") for number in range(4)]
        for compression in Compression:
            error = refused(build_batch(given, compression=compression), LogSettings(compact=True))
            assert isinstance(error, InvalidRecord)
            assert [number for number, _ in error.record_errors] == [1, 3]

    def test_an_empty_key_is_a_key(self) -> None:
        LogWorkbench(LogSettings(compact=True)).append(batch(b"a", key=b""))

    def test_elsewhere_keys_are_not_needed(self) -> None:
        LogWorkbench().append(batch(b"a", key=None))


class TestCompression:
    @pytest.mark.parametrize("source", Compression)
    @pytest.mark.parametrize("target", Compression)
    @pytest.mark.parametrize("clock", TimestampType)
    def test_a_topics_compression_is_the_one_that_is_stored(
        self, source: Compression, target: Compression, clock: TimestampType
    ) -> None:
        bench = LogWorkbench(LogSettings(compression=target, message_timestamp_type=clock))
        times = [NOW, NOW + 7, NOW - 3]
        producer = Producer(4, 0, transactional=True)
        sent = batch(b"a" * 50, b"b" * 50, None, timestamps=times, compression=source, producer=producer)
        bench.append(sent)
        bench.append(batch(b"c", producer=Producer(4, 3, transactional=True)))
        found = next(iter(stored_batches(bench.log)))
        assert found.header.compression is target
        assert (found.header.producer_id, found.header.base_sequence, found.header.is_transactional) == (4, 0, True)
        assert found.header.max_timestamp == (NOW if clock else NOW + 7)
        kept = list(read_records(found.data))
        assert [record.value for record in kept] == [b"a" * 50, b"b" * 50, None]
        assert [record.timestamp for record in kept] == ([NOW] * 3 if clock else times)
        check_consistent(bench.log)

    def test_a_batch_that_grows_beyond_the_limit_is_rejected(self) -> None:
        data = batch(bytes(5000), compression=Compression.GZIP)
        settings = LogSettings(compression=Compression.NONE, max_message_bytes=1000)
        assert isinstance(refused(data, settings), MessageTooLarge)

    def test_garbage_under_a_right_checksum_is_refused(self) -> None:
        data = batch(bytes(5000), compression=Compression.GZIP)
        data[70:80] = bytes(10)
        assign_crc(data, 0, len(data))
        refused(data, LogSettings(compression=Compression.ZSTD))

    def test_as_the_producer_did_is_untouched(self) -> None:
        bench = LogWorkbench(LogSettings())
        sent = batch(bytes(500), compression=Compression.SNAPPY)
        bench.append(bytearray(sent))
        (found,) = stored_batches(bench.log)
        assert found.data[16:] == sent[16:]
        assert read_header(found.data).compression is Compression.SNAPPY


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "PIECE_BYTES", 50)
    monkeypatch.setattr(summary, "PIECE_BYTES", 50)
    monkeypatch.setattr(validation, "PIECE_BYTES", 50)
    monkeypatch.setattr(validation, "_HELD_BYTES", 49)


def look(data: bytearray, settings: LogSettings) -> object:
    """What becomes of a batch: header and records as they are stored, or the error and the records at fault."""
    try:
        taken, header = validate_batch(bytearray(data), settings, Origin.CLIENT, NOW)
    except RecordError as error:
        return type(error), error.record_errors
    assert header == read_header(taken)
    return header._replace(batch_length=0, crc=0), list(read_records(taken))


class TestPieces:
    """A batch whose records come in pieces is answered and stored as one whose records are at hand as a whole."""

    @pytest.mark.parametrize("source", Compression)
    @pytest.mark.parametrize("target", [None, *Compression])
    @pytest.mark.parametrize("skews", [(0, 7, -3), (5, 0, -20)])
    def test_the_outcome_is_the_same(
        self,
        source: Compression,
        target: Compression | None,
        skews: tuple[int, ...],
        request: pytest.FixtureRequest,
    ) -> None:
        sent = [
            Record(number, NOW + skew, None if number == 2 else b"k" * 9, bytes(number * 70), [("h", b"v" * 60)])
            for number, skew in enumerate(skews)
        ]
        batches = [build_batch(sent, compression=source)]
        early = build_batch(sent, delete_horizon=NOW - 50, compression=source)  # the base is that, not the first time
        early[21:23] = (read_header(early).attributes & ~0x40).to_bytes(2)
        assign_crc(early, 0, len(early))
        batches.append(early)
        choices = [
            LogSettings(compression=target),
            LogSettings(compression=target, compact=True),
            LogSettings(compression=target, message_timestamp_before_max_ms=1),
            LogSettings(compression=target, message_timestamp_type=TimestampType.LOG_APPEND),
        ]
        whole = [look(data, settings) for data in batches for settings in choices]
        request.getfixturevalue("small_pieces")
        assert [look(data, settings) for data in batches for settings in choices] == whole
        assert any(isinstance(found, tuple) and found[0] is InvalidRecord for found in whole)

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.parametrize("target", [Compression.NONE, Compression.SNAPPY])
    def test_a_batch_that_grows_beyond_the_limit_is_rejected(self, target: Compression) -> None:
        data = batch(*(bytes([number]) * 400 for number in range(100)), compression=Compression.GZIP)
        settings = LogSettings(compression=target, max_message_bytes=len(data) + 10)
        assert isinstance(refused(data, settings), MessageTooLarge)

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.parametrize("target", [None, Compression.ZSTD])
    def test_bytes_after_the_last_record_are_refused(self, target: Compression | None) -> None:
        data = batch(*(bytes(100) for _ in range(5)))
        header = read_header(data)
        longer = replace_payload(data, header, bytes(data[HEADER_BYTES:]) + b"\0", Compression.GZIP)
        assert isinstance(refused(longer, LogSettings(compression=target)), InvalidRecord)
        fewer = header._replace(record_count=4, last_offset_delta=3)
        shorter = replace_payload(data, fewer, bytes(data[HEADER_BYTES:]), Compression.GZIP)
        assert isinstance(refused(shorter, LogSettings(compression=target)), InvalidRecord)
