"""A node as a process: clean stops, kills and restarts."""

import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.records import Record, build_batch
from ottla.protocol.wire.varint import write_uvarint
from tests.conformance.clients.topics import create_topic
from tests.support.ottla_node import NodeFailed, OttlaNode

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def read_all(node: OttlaNode, topic: str, ends: dict[int, int]) -> dict[int, list[Message]]:
    """Consume the messages of some partitions up to these end offsets."""
    consumer = Consumer(
        {"bootstrap.servers": node.address, "group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition, end in ends.items() if end])
    found: dict[int, list[Message]] = {partition: [] for partition in ends}
    deadline = time.monotonic() + 60
    left = sum(ends.values())
    while left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.5):
            assert message.error() is None, message.error()
            partition = message.partition() or 0
            if (message.offset() or 0) < ends[partition]:
                found[partition].append(message)
                left -= 1
    consumer.close()
    assert left == 0, f"{left} messages are missing"
    return found


class Sender:
    """A producer that records acknowledged messages."""

    def __init__(self, node: OttlaNode, **settings: Any) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._producer = Producer({"bootstrap.servers": node.address, **settings})

    def send(self, topic: str, value: bytes, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, on_delivery=self._delivered, **more)
            except BufferError:
                self._producer.poll(0.01)
            else:
                self._producer.poll(0)
                return

    def flush(self, seconds: float) -> int:
        left: int = self._producer.flush(seconds)
        return left

    def give_up(self) -> None:
        """Purge unsent records: each of them keeps the producer alive and reconnecting."""
        self._producer.purge()
        assert self._producer.flush(10) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self.acknowledged[partition, offset] = message.value() or b""


def test_a_clean_stop_loses_nothing(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        create_topic(node, "t", 2)
        sender = Sender(node, **{"enable.idempotence": False})
        for number in range(500):
            sender.send("t", b"%d" % number, partition=number % 2)
        assert sender.flush(30) == 0
    with node.running():
        found = read_all(node, "t", {0: 250, 1: 250})
        assert len(found[0]) + len(found[1]) == 500
        create_topic(node, "new")
    assert not node.logged_errors()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are told by /proc")
def test_a_deleted_topic_frees_its_disk_space(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, SETTINGS | {"log.segment.delete.delay.ms": "100"})
    node.format()
    with node.running():
        create_topic(node, "t", 3)
        sender = Sender(node)
        for number in range(300):
            sender.send("t", bytes(1000), partition=number % 3)
        assert sender.flush(30) == 0
        read_all(node, "t", {0: 100, 1: 100, 2: 100})
        admin = AdminClient({"bootstrap.servers": node.address})
        admin.delete_topics(["t"])["t"].result()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (left := open_files(node, "/t-")):
            time.sleep(0.05)
        assert not left
    assert not node.logged_errors()


def open_files(node: OttlaNode, part: str) -> list[str]:
    """Return the paths of the process's open files, including deleted ones."""
    found = []
    for each in Path(f"/proc/{node.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(each.readlink()))
    return [name for name in found if part in name]


def test_no_acknowledged_record_is_lost_when_the_process_is_killed_under_load(tmp_path: Path) -> None:
    """The next process does not wait for the session of the killed one to expire."""
    node = OttlaNode(tmp_path, SETTINGS | {"broker.session.timeout.ms": "600000"})
    node.format()
    node.start()
    try:
        create_topic(node, "t", 4)
        for round_number in range(3):
            sender = Sender(node, acks=1, **{"linger.ms": 1, "enable.idempotence": False, "message.timeout.ms": 3000})
            stopping = threading.Event()
            thread = threading.Thread(target=_load, args=(sender, stopping), daemon=True)
            thread.start()
            time.sleep(0.5 + 0.2 * round_number)
            node.stop(signal.SIGKILL)
            stopping.set()
            thread.join()
            sender.flush(0.1)
            acknowledged = dict(sender.acknowledged)
            sender.give_up()
            assert acknowledged
            node.start()
            ends = {
                partition: max((offset for at, offset in acknowledged if at == partition), default=-1) + 1
                for partition in range(4)
            }
            found = read_all(node, "t", ends)
            values = {
                (partition, message.offset() or 0): message.value()
                for partition, messages in found.items()
                for message in messages
            }
            assert all(values.get(at) == value for at, value in acknowledged.items())
    finally:
        if node.pid is not None:
            node.stop()


def _load(sender: Sender, stopping: threading.Event) -> None:
    number = 0
    while not stopping.is_set():
        sender.send("t", b"%d" % number * 5, partition=number % 4)
        number += 1


def test_a_node_that_cannot_apply_the_metadata_exits_with_the_reason(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        pass
    log = max((node.directory / "__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    last = list(read_batches(data))[-1][1]
    unknown = b"\x01" + write_uvarint(9_999) + b"\x00"
    offset = last.last_offset + 1
    batch = build_batch([Record(offset, 0, None, unknown)], base_offset=offset, leader_epoch=last.leader_epoch)
    log.write_bytes(data + batch)
    with pytest.raises(NodeFailed, match=r"cannot be applied: .*type 9999"), node.running():
        pytest.fail("it became ready")
