"""Produce, versions 3 to 13: batches are accepted, refused and stored as in Kafka."""

import time
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from ottla.protocol.messages.rpc.produce import ProduceRequest, TopicProduceData
from ottla.protocol.wire.batch import (
    HEADER_BYTES,
    MAX_INT32,
    MAX_INT64,
    NO_TIMESTAMP,
    TimestampType,
    read_batches,
    read_header,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch, replace_payload
from ottla.protocol.wire.varint import write_varint, write_varlong
from tests.conformance.differential.harness import NodePair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import (
    PRODUCE_VERSIONS,
    TIMESTAMP,
    Part,
    alter_header,
    batch,
    compressed_batch,
    fetch,
    produce,
)

LATEST = PRODUCE_VERSIONS[-1]
Batch = bytes | bytearray | None

BATCHES: dict[str, Callable[[], Batch]] = {
    "one record": batch,
    "many records": lambda: batch(100),
    "null key and value": lambda: build_batch([Record(0, TIMESTAMP, None, None)]),
    "headers": lambda: build_batch([Record(0, TIMESTAMP, b"", b"", (("a", b"b"), ("a", None)))]),
    "null": lambda: None,
    "no bytes": lambda: b"",
    "a truncated batch header": lambda: batch()[:40],
    "only a batch header": lambda: batch()[:61],
    "cut": lambda: batch(3)[:-5],
    "trailing bytes": lambda: batch() + b"\0\0\0",
    "two batches": lambda: batch() + batch(),
    "three batches": lambda: batch(2) + batch(2) + batch(2),
    "bad checksum": lambda: alter_header(batch(), checksum=False, crc=1),
    "magic 0": lambda: alter_header(batch(), magic=0),
    "magic 1": lambda: alter_header(batch(), magic=1),
    "magic 3": lambda: alter_header(batch(), magic=3),
    "length of zero": lambda: alter_header(batch(), batch_length=0),
    "negative length": lambda: alter_header(batch(), batch_length=-1),
    "length too small": lambda: alter_header(batch(), batch_length=40),
    "length too large": lambda: alter_header(batch(), batch_length=10_000),
    "base offset 7": lambda: alter_header(batch(), base_offset=7),
    "negative base offset": lambda: alter_header(batch(), base_offset=-7),
    "leader epoch 9": lambda: alter_header(batch(), leader_epoch=9),
    "fewer records counted": lambda: alter_header(batch(3), record_count=2),
    "more records counted": lambda: alter_header(batch(3), record_count=4),
    "no records counted": lambda: alter_header(batch(3), record_count=0),
    "negative count": lambda: alter_header(batch(3), record_count=-1),
    "count and delta too small": lambda: alter_header(batch(3), record_count=2, last_offset_delta=1),
    "count and delta too large": lambda: alter_header(batch(3), record_count=4, last_offset_delta=3),
    "negative last offset": lambda: alter_header(batch(), last_offset_delta=-1),
    "last offset too large": lambda: alter_header(batch(3), last_offset_delta=9),
    "offset gap inside": lambda: build_batch([Record(0, TIMESTAMP, b"k", b"v"), Record(2, TIMESTAMP, b"k", b"v")]),
    "control": lambda: batch(control=True),
    "log append time": lambda: batch(timestamp_type=TimestampType.LOG_APPEND),
    "compression 5": lambda: alter_header(batch(), attributes=5),
    "compression 7": lambda: alter_header(batch(), attributes=7),
    "unused attributes": lambda: alter_header(batch(), attributes=0x80),
    "delete horizon": lambda: alter_header(batch(), attributes=0x40),
    "no timestamp": lambda: batch(timestamp=NO_TIMESTAMP),
    "negative timestamp": lambda: batch(timestamp=-5),
    "max timestamp too small": lambda: alter_header(batch(3), max_timestamp=TIMESTAMP),
    "max timestamp too large": lambda: alter_header(batch(3), max_timestamp=TIMESTAMP + 1000),
    "two hours ahead": lambda: batch(timestamp=int(time.time() * 1000) + 7_200_000),
    "max timestamp two hours ahead": lambda: alter_header(batch(), max_timestamp=int(time.time() * 1000) + 7_200_000),
    "producer without sequence": lambda: batch(producer_id=90, producer_epoch=0),
    "producer without epoch": lambda: batch(producer_id=91, base_sequence=0),
    "sequence without producer": lambda: batch(base_sequence=0, producer_epoch=0),
    "transactional without producer": lambda: batch(transactional=True),
    "too large": lambda: batch(value=bytes(1_100_000)),
    "gzip": lambda: compressed_batch(Compression.GZIP),
    "snappy": lambda: compressed_batch(Compression.SNAPPY),
    "lz4": lambda: compressed_batch(Compression.LZ4),
    "zstd": lambda: compressed_batch(Compression.ZSTD),
    "gzip of garbage": lambda: alter_header(batch(), attributes=Compression.GZIP),
    "zstd of garbage": lambda: alter_header(batch(), attributes=Compression.ZSTD),
    "garbage": lambda: alter_header(batch()[:61] + bytes([0x55]) * 30, batch_length=79),
}


def batch_with_payload(payload: bytes, count: int, compression: Compression = Compression.NONE) -> bytearray:
    """Return a batch with a valid header and any bytes as records."""
    header = read_header(build_batch([Record(number, TIMESTAMP, b"k", b"v") for number in range(count)]))
    return replace_payload(bytes(HEADER_BYTES), header, payload, compression)


def record(
    delta: int = 0, *, key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\0", skew: bytes = b"\0"
) -> bytes:
    """Return a record encoded field by field, after its length."""
    body = b"\0" + skew + write_varint(delta) + key + value + headers
    return write_varint(len(body)) + body


PAYLOADS: dict[str, tuple[bytes, int]] = {
    "a valid record": (record(), 1),
    "nothing at all": (b"", 1),
    "one of two counted records": (record(), 2),
    "two records counted as one": (record() + record(1), 1),
    "a trailing byte": (record() + b"\0", 1),
    "a truncated length": (b"\x80", 1),
    "a length of zero": (b"\0", 1),
    "a negative length": (b"\x03" + record()[1:], 1),
    "a length past the end": (b"\x40" + record()[1:], 1),
    "a length too small": (b"\x0c" + record()[1:], 1),
    "a length of six bytes": (b"\x90\x80\x80\x80\x80\x00" + record()[1:], 1),
    "a padded length": (b"\x90\x00" + record()[1:], 1),
    "attributes": (record()[:1] + b"\x07" + record()[2:], 1),
    "a key past the end": (record(key=b"\x40k"), 1),
    "a key as long as the record": (record(key=b"\x08k"), 1),
    "a value past the end": (record(value=b"\x40v"), 1),
    "null key and null value": (record(key=b"\1", value=b"\1"), 1),
    "a negative number of headers": (record(headers=b"\x01"), 1),
    "more headers than bytes": (record(headers=b"\x40"), 1),
    "a header": (record(headers=b"\x02\x02h\x02v"), 1),
    "a header without key": (record(headers=b"\x02\x01\x02v"), 1),
    "a header without value": (record(headers=b"\x02\x02h\x01"), 1),
    "a truncated header": (record(headers=b"\x02\x02h\x04v"), 1),
    "a header too many": (record(headers=b"\x04\x02h\x02v"), 1),
    "a header too few": (record(headers=b"\x00\x02h\x02v"), 1),
    "an offset twice": (record() + record(), 2),
    "an offset too large": (record(1), 1),
    "an earlier timestamp": (record(skew=write_varlong(-5)), 1),
    "the largest timestamp": (record(skew=write_varlong(MAX_INT64 - TIMESTAMP)), 1),
}
"""Bytes that a producer might send as records, and the record count in the header."""
BATCHES |= {
    f"{name}, {codec.name.lower()}": partial(batch_with_payload, payload, count, codec)
    for name, (payload, count) in PAYLOADS.items()
    for codec in (Compression.NONE, Compression.GZIP, Compression.ZSTD)
}

DELIBERATE_ERRORS: dict[str, int] = {
    "null": 87,  # Kafka fails inside and never answers
    "compression 5": 87,  # Kafka fails inside: UNKNOWN_SERVER_ERROR
    "compression 7": 87,
    "gzip of garbage": 87,
    "zstd of garbage": 87,
    "a length of six bytes, none": 87,
    # Kafka stores these uncompressed, so that consumers see one record at another's offset; compressed it fails inside.
    **{f"an offset {kind}, {codec}": 87 for kind in ("twice", "too large") for codec in ("none", "gzip", "zstd")},
    # Kafka does not check the lengths of compressed records, and stores records that its consumers cannot read.
    "a negative length, gzip": 87,
    "a negative length, zstd": 87,
    "a length past the end, gzip": 87,
    "a length past the end, zstd": 87,
    "a length too small, gzip": 87,
    "a length too small, zstd": 87,
    "log append time": 32,  # Kafka accepts it, and ignores the attribute
    "producer without epoch": 87,  # Kafka accepts it, with producer epoch -1
}
"""Batches for which Ottla differs on purpose, with its error code."""
WITHOUT_MESSAGE_CHECK = {"magic 3", "length of zero", "negative length"}
"""Batches for which Kafka fails before it checks partitions, and so returns a message."""


@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_accepted_or_refused_the_same_way(both: NodePair, name: str) -> None:
    topic = both.new_topic()
    for version in PRODUCE_VERSIONS if name != "null" else (3, 9, 13):
        request = produce(version, (topic, 0, BATCHES[name]()))
        if name in DELIBERATE_ERRORS:
            answers = both.ask(request, version, timeout_s=0.2 if name == "null" else 10)
            expected = 76 if version < 7 and "zstd" in name else DELIBERATE_ERRORS[name]
            assert answers.ottla.responses[0].partition_responses[0].error_code == expected
            both.reconnect()
        else:
            both.expect_same(
                request, version, messages=Messages.IGNORED if name in WITHOUT_MESSAGE_CHECK else Messages.LOOSELY
            )
    if name not in DELIBERATE_ERRORS:
        both.expect_same(fetch(12, Part(topic)), 12)


UNCOMPACTED = {"min.compaction.lag.ms": str(MAX_INT64)}
"""Keeps compaction, which may run at any time, from changing the log."""
SETTINGS: dict[str, dict[str, str]] = {
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact", **UNCOMPACTED},
    "compacted and deleted": {"cleanup.policy": "compact,delete", **UNCOMPACTED},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "append time and zstd": {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    "small messages": {"max.message.bytes": "200"},
    "small messages and gzip": {"max.message.bytes": "200", "compression.type": "gzip"},
    "not too old": {"message.timestamp.before.max.ms": "1000"},
    "not too new": {"message.timestamp.after.max.ms": "1000"},
    "two in sync": {"min.insync.replicas": "2"},
    "small segments": {"internal.segment.bytes": "300"},
    "durable": {"flush.messages": "1"},
}


def now_ms() -> int:
    return int(time.time() * 1000)


STORED: dict[str, Callable[[], Batch]] = {
    "plain": batch,
    "several": lambda: batch(20, value=b"same " * 10),
    "gzip": lambda: compressed_batch(Compression.GZIP),
    "snappy": lambda: compressed_batch(Compression.SNAPPY),
    "lz4": lambda: compressed_batch(Compression.LZ4),
    "zstd": lambda: compressed_batch(Compression.ZSTD),
    "no key": lambda: batch(key=None),
    "no key in the middle": lambda: build_batch(
        [Record(number, TIMESTAMP, None if number % 2 else b"k", b"v") for number in range(5)]
    ),
    "an hour ahead": lambda: batch(2, timestamp=now_ms() + 3_000_000),
    "now": lambda: batch(2, timestamp=now_ms()),
    "old and new": lambda: build_batch(
        [Record(0, now_ms(), b"k", b"v"), Record(1, 5, b"k", b"v"), Record(2, now_ms() + 3_000_000, b"k", b"v")]
    ),
    "no key and too old": lambda: batch(key=None, timestamp=5),
    "idempotent": lambda: batch(3, producer_id=7, producer_epoch=0, base_sequence=0),
    "headers": lambda: build_batch([Record(0, TIMESTAMP, b"k", b"v", (("name", b"x" * 30), ("", None)))]),
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_topic_settings_change_stored_batches_the_same_way(both: NodePair, settings: str) -> None:
    topic = both.new_topic(configs=SETTINGS[settings])
    version_of = {name: PRODUCE_VERSIONS[4 + number % 7] for number, name in enumerate(STORED)}
    for name, make in STORED.items():
        version = version_of[name]
        both.expect_same(produce(version, (topic, 0, make()), acks=1), version, messages=Messages.LOOSELY)
    offset = 0
    while True:
        answers = both.expect_same(fetch(12, Part(topic, offset=offset)), 12)
        data = bytes(answers.ottla.responses[0].partitions[0].records or b"")
        if not data:
            return
        offset = max(header.next_offset for _, header in read_batches(data))


Sent = tuple[int, int, int, int]
"""Producer id, epoch, first sequence, records."""
SCRIPTS: dict[str, list[Sent]] = {
    "in order": [(1, 0, 0, 2), (1, 0, 2, 1), (1, 0, 3, 5)],
    "repeated": [(1, 0, 0, 2), (1, 0, 0, 2), (1, 0, 2, 1), (1, 0, 0, 2)],
    "repeated among the last five": [(1, 0, number, 1) for number in (*range(8), 7, 6, 5, 4, 3, 2, 1, 0)],
    "repeated in part": [(1, 0, 0, 4), (1, 0, 0, 2), (1, 0, 2, 2), (1, 0, 1, 4)],
    "a gap": [(1, 0, 0, 1), (1, 0, 5, 1), (1, 0, 1, 1)],
    "a late start": [(1, 0, 17, 1), (1, 0, 18, 1)],
    "a newer epoch": [(1, 0, 0, 1), (1, 1, 0, 1), (1, 1, 1, 1)],
    "a newer epoch that does not start at 0": [(1, 0, 0, 1), (1, 1, 3, 1), (1, 1, 1, 1)],
    "an older epoch": [(1, 5, 0, 1), (1, 4, 1, 1), (1, 4, 0, 1), (1, 5, 1, 1)],
    "around the largest sequence": [(1, 0, MAX_INT32 - 1, 2), (1, 0, 0, 1), (1, 0, 1, 1)],
    "across the largest sequence": [(1, 0, MAX_INT32, 3), (1, 0, 2, 1), (1, 0, MAX_INT32, 3)],
    "several producers": [(1, 0, 0, 1), (2, 0, 0, 1), (1, 0, 1, 1), (2, 0, 0, 1), (2, 0, 2, 1)],
    "with and without": [(1, 0, 0, 1), (-1, -1, -1, 1), (1, 0, 1, 1)],
    "the largest producer id and epoch": [((1 << 63) - 1, 32_767, 0, 1), ((1 << 63) - 1, 32_767, 1, 1)],
}


def send_script(both: NodePair, topic: str, script: list[Sent], version: int) -> None:
    for producer_id, epoch, sequence, count in script:
        data = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        both.expect_same(produce(version, (topic, 0, data)), version, messages=Messages.LOOSELY)


@pytest.mark.parametrize("name", SCRIPTS)
def test_sequences_of_idempotent_producers_are_checked_the_same_way(both: NodePair, name: str) -> None:
    topic = both.new_topic(partitions=1)
    send_script(both, topic, SCRIPTS[name], version=12)
    both.expect_same(fetch(12, Part(topic)), 12)


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_get_the_same_answers(both: NodePair, seed: int) -> None:
    random = Random(seed)
    topic = both.new_topic()
    next_of: dict[int, tuple[int, int]] = {}
    script: list[Sent] = []
    for _ in range(60):
        producer_id = random.randrange(3)
        epoch, sequence = next_of.get(producer_id, (0, 0))
        count = random.choice((1, 1, 2, 5))
        epoch += random.choice((0, 0, 0, 0, 0, 0, 1, -1))
        sequence = max(sequence + random.choice((0, 0, 0, 0, 0, 0, 1, -1, -2, -5)), 0)
        if epoch < 0:
            continue
        script.append((producer_id, epoch, sequence, count))
        next_of[producer_id] = (epoch, sequence + count)
    send_script(both, topic, script, version=random.choice(PRODUCE_VERSIONS[:-1]))
    both.expect_same(fetch(12, Part(topic)), 12)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_missing_topics_and_partitions_get_the_same_answers(both: NodePair, version: int) -> None:
    topic = both.new_topic(partitions=2)
    for name, index in (("nowhere", 0), (topic, 2), (topic, -1), ("bad name!", 0), ("", 0)):
        both.expect_same(produce(version, (name, index, batch())), version, messages=Messages.LOOSELY)
        both.expect_same(produce(version, (name, index, b"")), version, messages=Messages.LOOSELY)
    both.expect_same(produce(version, (topic, 1, batch()), ("nowhere", 0, batch()), (topic, 7, batch())), version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_invalid_acks_get_the_same_answers(both: NodePair, version: int, acks: int) -> None:
    topic = both.new_topic()
    both.expect_same(produce(version, (topic, 0, batch()), acks=acks), version, messages=Messages.LOOSELY)
    both.expect_same(produce(version, ("nowhere", 0, batch()), acks=acks), version, messages=Messages.LOOSELY)
    both.expect_same(fetch(12, Part(topic)), 12)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_version_stores_records(both: NodePair, version: int, acks: int) -> None:
    topic = both.new_topic(partitions=3)
    parts = [(topic, index, batch(index + 1)) for index in range(3)]
    for _ in range(2):
        if acks:
            both.expect_same(produce(version, *parts, acks=acks), version)
        else:
            assert both.send_unanswered(produce(version, *parts, acks=acks), version) == ("open", "open")
    both.expect_same(fetch(12, *(Part(topic, index) for index in range(3))), 12)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_errors_without_acks_close_the_connection(both: NodePair, version: int) -> None:
    topic = both.new_topic()
    bad: list[tuple[str, int, bytes | bytearray]] = [
        ("nowhere", 0, batch()),
        (topic, 3, batch()),
        (topic, 0, b""),
        (topic, 0, batch() + batch()),
    ]
    for part in bad:
        outcome = both.send_unanswered(produce(version, part, acks=0), version)
        assert outcome == ("closed", "closed"), part
    both.expect_same(fetch(12, Part(topic)), 12)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_empty_requests_get_the_same_answers(both: NodePair, version: int) -> None:
    both.expect_same(ProduceRequest(acks=-1, timeout_ms=1000), version)
    topic = both.new_topic()
    both.expect_same(
        lambda side: ProduceRequest(acks=1, topic_data=[TopicProduceData(name=topic, topic_id=side.id_of(topic))]),
        version,
    )


def test_a_transactional_id_without_a_transaction_gets_the_same_answer(both: NodePair) -> None:
    topic = both.new_topic()
    for version in PRODUCE_VERSIONS:
        both.expect_same(produce(version, (topic, 0, batch()), transactional_id="t"), version)
    both.expect_same(fetch(12, Part(topic)), 12)


def test_a_batch_of_an_unknown_transaction_is_refused(both: NodePair) -> None:
    topic = both.new_topic()
    for version in PRODUCE_VERSIONS:
        data = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        both.expect_same(produce(version, (topic, 0, data), transactional_id="t"), version)


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_get_the_same_answers(both: NodePair, seed: int) -> None:
    """Requests have several partitions of several topics, some of them invalid."""
    random = Random(seed)
    topics = [both.new_topic(partitions=2) for _ in range(3)]
    good = sorted(BATCHES.keys() - DELIBERATE_ERRORS.keys() - WITHOUT_MESSAGE_CHECK)
    for _ in range(25):
        version = random.choice(PRODUCE_VERSIONS)
        chosen = random.sample([*topics, "nowhere"], random.randint(1, 4))
        parts = [(topic, random.choice((0, 1, 1, 2)), BATCHES[random.choice(good)]()) for topic in chosen]
        acks, timeout_ms = random.choice((1, -1)), random.choice((0, 1000, -1))
        request = produce(version, *parts, acks=acks, timeout_ms=timeout_ms)
        both.expect_same(request, version)
    for topic in topics:
        for index in (0, 1):
            both.expect_same(fetch(12, Part(topic, index)), 12)
