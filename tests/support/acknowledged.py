"""A producer that remembers its acknowledged records and checks that they are all in the log.

    with Acknowledged(cluster.address, "t", partitions=3) as producing:   # writes continuously in a thread
        cluster.kill(2)
    producing.check()   # every acknowledged record is there, once, in order

Records are numbered per partition. librdkafka writes them, with idempotence and acks=all.
"""

import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}
"""Makes clients look for a new leader as soon as possible."""
DELIVERY_MS = 120_000
READ_S = 60.0


class Acknowledged:
    """A producer that writes to all partitions of a topic until its block ends."""

    def __init__(self, address: str, topic: str, *, partitions: int, pause_s: float = 0.001, value_bytes: int = 100):
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._padding = "x" * value_bytes
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_MS,
                **QUICK,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="acknowledged", daemon=True)
        self._last_s = 0.0
        self.sent = 0
        self.offsets: dict[int, dict[int, int]] = defaultdict(dict)
        """Partition → number of a record → its offset."""
        self.longest_gap_s = 0.0
        """The longest time between two acknowledgements since a test last set this to 0."""
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._last_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))

    def wait_for(self, more: int, timeout_s: float = 60.0) -> None:
        """Wait until `more` further records are acknowledged."""
        deadline, target = time.monotonic() + timeout_s, self.count + more
        while self.count < target:
            assert time.monotonic() < deadline, f"{self.count} of {target} acknowledged after {timeout_s:g} s"
            time.sleep(0.01)

    def check(self) -> None:
        """Check that every acknowledged record is at its offset, once, and in order."""
        assert not self.failures, self.failures[:5]
        for partition in range(self._partitions):
            stored = self._read(partition)
            numbers = list(stored.values())
            assert numbers == sorted(set(numbers)), f"partition {partition} has duplicate or reordered records"
            missing = {
                number: offset for number, offset in self.offsets[partition].items() if stored.get(offset) != number
            }
            assert not missing, f"partition {partition} lost acknowledged records: {sorted(missing.items())[:10]}"

    def _write(self) -> None:
        while not self._stopping.is_set():
            partition, number = self.sent % self._partitions, self.sent // self._partitions
            try:
                self._producer.produce(
                    self._topic, f"{number} {self._padding}", partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            self.sent += 1
            self._producer.poll(0)
            time.sleep(self._pause_s)
        left = self._producer.flush(DELIVERY_MS / 1000)
        if left:
            self.failures.append(f"{left} records were neither acknowledged nor refused")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.longest_gap_s, self._last_s = max(self.longest_gap_s, now - self._last_s), now
        if error is not None:
            self.failures.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.offsets[partition][_number(value)] = offset

    def _read(self, partition: int) -> dict[int, int]:
        """Return the records of a partition: offset → number."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._address,
            "group.id": "checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **QUICK,
        }
        consumer = Consumer(settings)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=READ_S)
            consumer.assign([TopicPartition(self._topic, partition, 0)])
            numbers: dict[int, int] = {}
            deadline = time.monotonic() + READ_S
            while not numbers or max(numbers) < end - 1:
                if not end:
                    break
                assert time.monotonic() < deadline, f"partition {partition} was not read up to {end} in {READ_S:g} s"
                for message in consumer.consume(10_000, timeout=0.5):
                    assert message.error() is None, message.error()
                    value, offset = message.value(), message.offset()
                    assert value is not None
                    assert offset is not None
                    assert offset not in numbers, f"offset {offset} was read twice"
                    numbers[offset] = _number(value)
            return numbers
        finally:
            consumer.close()


def _number(value: bytes | str) -> int:
    text = value if isinstance(value, str) else value.decode()
    return int(text.split(" ", 1)[0])
