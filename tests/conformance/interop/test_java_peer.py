"""The Java peer knows every message, reports errors, and reads the batches that it writes."""

import json
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.interop.peer_batches import BatchOptions, PeerRecord
from tests.support.java_peer import JavaError, JavaPeer, PeerDiedError

PROTOCOL = Path(__file__).parents[3] / "bench" / "harness" / "kafka-4.3.1-messages.json"
MESSAGES: list[dict[str, Any]] = json.loads(PROTOCOL.read_text())["messages"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LEVELS = [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -5), ("zstd", 19)]
RECORDS = [
    PeerRecord(timestamp=1_000, key=b"key", value=b"value " * 1_000, headers=(("name", b"\x00\xff"), ("é", None))),
    PeerRecord(timestamp=1_002, key=None, value=None),
    PeerRecord(timestamp=999, key=b"", value=b"", headers=(("name", b""),)),
]


def versions(message: dict[str, Any]) -> range:
    lowest, _, highest = message["versions"].partition("-")
    return range(int(lowest), int(highest or lowest) + 1)


def test_the_peer_has_every_message_in_exactly_the_listed_versions(java_peer: JavaPeer) -> None:
    classes = java_peer.messages()
    assert len(MESSAGES) == 267
    assert {m["name"]: versions(m) for m in MESSAGES} == {
        m["name"]: range(classes[m["name"]].lowest, classes[m["name"]].highest + 1) for m in MESSAGES
    }
    # All other messages belong to tiered storage.
    others = classes.keys() - {m["name"] for m in MESSAGES}
    assert all("remote.metadata.storage" in classes[name].class_name for name in others)


def test_every_message_survives_a_round_trip_in_every_version(java_peer: JavaPeer) -> None:
    items = [(m["name"], version) for m in MESSAGES for version in versions(m)]
    defaults = java_peer.defaults(items)
    assert [m for m in defaults if m.error] == []
    again = java_peer.roundtrip([(m.name, m.version, m.data) for m in defaults])
    assert again == defaults
    assert all(isinstance(m.value, dict) for m in defaults)


def test_many_items_are_split_into_questions_and_answered_in_order(java_peer: JavaPeer) -> None:
    epochs = range(2_500)
    results = java_peer.roundtrip([("EndTxnMarker", 0, struct.pack(">i", epoch)) for epoch in epochs])
    assert [result.value["coordinatorEpoch"] for result in results] == list(epochs)
    large = [("SaslAuthenticateRequestData", 0, struct.pack(">i", size) + bytes(size)) for size in [3 << 20] * 4]
    assert [result.data for result in java_peer.roundtrip(large)] == [body for _, _, body in large]


def test_values_come_back_as_json(java_peer: JavaPeer) -> None:
    batch = java_peer.write_batch([PeerRecord(value=b"v")])
    topic = struct.pack(">h1sii", 1, b"t", 1, 7)
    body = struct.pack(">hhii", -1, 1, 10, 1) + topic + struct.pack(">i", len(batch)) + batch
    quota = struct.pack(">ii4shih3sd??", 1, 1, b"\x00\x02ip", -1, 1, 3, b"key", float("nan"), True, False)
    produce, login, quotas = java_peer.roundtrip(
        [
            ("ProduceRequestData", 3, body),
            ("SaslAuthenticateRequestData", 0, b"\x00\x00\x00\x02\xff\xfe"),
            ("AlterClientQuotasRequestData", 0, quota),
        ]
    )
    assert produce.data == body
    assert produce.value == {
        "transactionalId": None,
        "acks": 1,
        "timeoutMs": 10,
        "topicData": [{"name": "t", "partitionData": [{"index": 7, "recordsSizeInBytes": len(batch)}]}],
    }
    assert login.value == {"authBytes": "//4="}
    assert quotas.value["entries"][0]["ops"] == [{"key": "key", "value": "NaN", "remove": True}]


def test_unknown_tagged_fields_are_kept(java_peer: JavaPeer) -> None:
    body = b"\x00\x00\x00\x01\x00\x02" + b"\x01\x63\x02hi"
    assert java_peer.roundtrip([("AddOffsetsToTxnResponseData", 3, body)])[0].data == body


def test_an_error_affects_only_its_own_item(java_peer: JavaPeer) -> None:
    items = [
        ("NoSuchMessage", 0, b""),
        ("EndTxnMarker", 0, b"\x00"),
        ("EndTxnMarker", 0, b"\x00" * 9),
        ("EndTxnMarker", 1, b"\x00" * 4),
        ("MetadataRequestData", 0, b"\x7f\xff\xff\xff"),
        ("EndTxnMarker", 0, b"\x00" * 4),
    ]
    expected = ["no message class", "BufferUnderflow", "5 bytes are left", "version 1 is not in 0-0", "2147483647"]
    *failed, good = java_peer.roundtrip(items)
    for failure, text in zip(failed, expected, strict=True):
        assert failure.error is not None
        assert text in failure.error
        assert failure.data == b""
        with pytest.raises(JavaError, match=failure.name):
            _ = failure.value
    assert good.error is None
    assert good.data == b"\x00" * 4


def test_errors_of_other_commands_are_raised(java_peer: JavaPeer) -> None:
    with pytest.raises(JavaError, match="snappy has no levels"):
        java_peer.compress("snappy", b"", level=1)
    with pytest.raises(JavaError, match="Unknown compression name"):
        java_peer.decompress("brotli", b"")
    with pytest.raises(JavaError, match="Not in GZIP format"):
        java_peer.decompress("gzip", b"not compressed")
    with pytest.raises(JavaError, match="less than the minimum record overhead"):
        java_peer.read_batches(struct.pack(">qi", 0, 3) + bytes(20))
    assert java_peer.decompress("none", b"still there") == b"still there"


def test_a_dead_peer_is_reported_with_its_log() -> None:
    with JavaPeer() as peer:
        # A question of impossible size makes the process exit with a stack trace.
        assert peer._process.stdin is not None
        peer._process.stdin.write(b"\xff\xff\xff\xff")
        with pytest.raises(PeerDiedError, match="IllegalArgumentException"):
            peer.messages()


def test_a_silent_peer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with JavaPeer() as peer:
        peer._process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("tests.support.java_peer.ANSWER_TIMEOUT_S", 0.2)
        with pytest.raises(PeerDiedError, match=f"exited with -{signal.SIGKILL.value}"):
            peer.messages()


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_java_wrote_are_read_back(java_peer: JavaPeer, codec: str) -> None:
    options: BatchOptions = {
        "compression": codec,
        "base_offset": 100,
        "leader_epoch": 4,
        "producer_id": 5,
        "producer_epoch": 6,
        "base_sequence": 7,
        "transactional": True,
    }
    data = java_peer.write_batch(RECORDS, **options)
    first, second = java_peer.read_batches(data + data + data[:-1])
    assert first == second
    assert {name: getattr(first, name) for name in options} == options
    assert first.size_bytes == len(data)
    assert (first.magic, first.crc_valid, first.error, first.control) == (2, True, None, False)
    assert (first.last_offset, first.last_sequence, first.count) == (102, 9, 3)
    assert (first.timestamp_type, first.base_timestamp, first.max_timestamp) == ("CreateTime", 1_000, 1_002)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in first.records] == [
        (r.timestamp, r.key, r.value, r.headers) for r in RECORDS
    ]
    assert [(r.offset, r.sequence) for r in first.records] == [(100, 7), (101, 8), (102, 9)]


def test_a_compacted_batch_keeps_its_offsets(java_peer: JavaPeer) -> None:
    records = [PeerRecord(offset=12, timestamp=3, value=b"a"), PeerRecord(offset=15, timestamp=4, value=b"b")]
    data = java_peer.write_batch(records, base_offset=10, last_offset=19, delete_horizon_ms=77)
    (batch,) = java_peer.read_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.delete_horizon_ms) == (10, 19, 77)
    assert [(r.offset, r.timestamp) for r in batch.records] == [(12, 3), (15, 4)]
    (empty,) = java_peer.read_batches(java_peer.write_batch([], base_offset=10, last_offset=19, producer_id=1))
    assert (empty.base_offset, empty.last_offset, empty.count, empty.producer_id) == (10, 19, 0, 1)


def test_log_append_time_replaces_the_timestamps(java_peer: JavaPeer) -> None:
    data = java_peer.write_batch(RECORDS, timestamp_type="LogAppendTime", log_append_time=5_000)
    (batch,) = java_peer.read_batches(data)
    assert batch.timestamp_type == "LogAppendTime"
    assert {r.timestamp for r in batch.records} == {batch.max_timestamp} == {5_000}


@pytest.mark.parametrize(("commit", "control_type"), [(True, "COMMIT"), (False, "ABORT")])
def test_markers_end_a_transaction(java_peer: JavaPeer, commit: bool, control_type: str) -> None:
    marker = java_peer.write_marker(
        commit=commit, producer_id=8, producer_epoch=2, coordinator_epoch=3, base_offset=50, timestamp=9, leader_epoch=1
    )
    (batch,) = java_peer.read_batches(marker)
    assert (batch.control, batch.transactional, batch.producer_id, batch.producer_epoch) == (True, True, 8, 2)
    assert (batch.base_offset, batch.leader_epoch) == (50, 1)
    (record,) = batch.records
    assert (record.control_type, record.timestamp, record.value) == (control_type, 9, struct.pack(">hi", 0, 3))


def test_control_records_get_their_key_from_java(java_peer: JavaPeer) -> None:
    body = java_peer.defaults([("LeaderChangeMessage", 0)])[0].data
    data = java_peer.write_batch([PeerRecord(control_type="LEADER_CHANGE", value=body)], control=True)
    (batch,) = java_peer.read_batches(data)
    assert batch.control
    (record,) = batch.records
    assert (record.control_type, record.key, record.value) == ("LEADER_CHANGE", struct.pack(">hh", 0, 2), body)


def test_a_damaged_batch_is_reported(java_peer: JavaPeer) -> None:
    data = bytearray(java_peer.write_batch(RECORDS, compression="zstd"))
    data[70] ^= 0xFF
    (batch,) = java_peer.read_batches(bytes(data))
    assert not batch.crc_valid
    assert batch.error is not None


@pytest.mark.parametrize(("codec", "level"), [*((codec, None) for codec in CODECS), *LEVELS])
@pytest.mark.parametrize("data", [b"", b"x", b"abcdefgh" * 50_000, bytes(range(256)) * 8])
def test_compressed_data_is_decompressed(java_peer: JavaPeer, codec: str, level: int | None, data: bytes) -> None:
    compressed = java_peer.compress(codec, data, level=level)
    assert java_peer.decompress(codec, compressed) == data
    assert codec == "none" or len(data) < 100_000 or len(compressed) < len(data) / 10
