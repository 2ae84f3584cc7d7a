"""The librdkafka clients of a soak.

    python -m tests.chaos.soak.clients FOLDER SERVERS SEED ROLE:NAME...

Each role runs in a thread and writes the history NAME.jsonl in the folder. SIGTERM stops all roles cleanly. SIGUSR1
prints the stacks of their threads.
"""

import faulthandler
import logging
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.soak.history import Recorder, make_value, name_of
from tests.support.acknowledged import QUICK

PLAIN: Final = "plain"
TRANSACTIONAL: Final = "tx"
COPY: Final = "copy"
PARTITIONS: Final = 3
COPIERS: Final = "copiers"
TRANSACTION_TIMEOUT_MS: Final = 12_000
SESSION_TIMEOUT_MS: Final = 6_000
_FLUSH_S: Final = 150.0
_CALL_S: Final = 20.0
_STUCK_S: Final = 30.0
_PAUSE_S: Final = 0.015


class Stuck(Exception):
    """A call of librdkafka does not return."""


class Client:
    """The settings, randomness and history of a role."""

    def __init__(self, folder: Path, servers: str, seed: str, name: str, stopping: threading.Event) -> None:
        self.name = name
        self.random = Random(f"{seed} {name}")
        self.record = Recorder(folder, name)
        self.stopping = stopping
        self.settings: dict[str, Any] = {"bootstrap.servers": servers, "client.id": name, **QUICK}

    @property
    def is_running(self) -> bool:
        return not self.stopping.is_set()


# -- producers --


def produce(client: Client, *, delivery_ms: int) -> None:
    """Produce with acks=all and idempotence. After a record is given up, continue with the next one."""
    sent: dict[int, int] = defaultdict(int)
    instance = 0
    while client.is_running:
        instance += 1
        producer = Producer(
            {
                **client.settings,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": delivery_ms,
                "debug": "eos",
                "log_level": 7,
            },
            logger=_epoch_logger(client),
        )
        while client.is_running:
            partition = client.random.randrange(PARTITIONS)
            name = f"{client.name}.{instance}/{partition}/{sent[partition]}"
            value = make_value(name, client.random.randrange(300))
            try:
                producer.produce(PLAIN, value, partition=partition, on_delivery=_record_delivery(client))
                sent[partition] += 1
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                client.record.note(f"cannot continue: {error}")
                break
            producer.poll(0)
            time.sleep(_PAUSE_S)
        pending = producer.flush(_FLUSH_S)
        if pending:
            client.record.note(f"{pending} records got no response")


def _epoch_logger(client: Client) -> logging.Logger:
    """Return a logger that records why a producer bumps its epoch, after which it may write duplicates."""

    def record_epoch_bump(record: logging.LogRecord) -> bool:
        if "epoch bump" in record.getMessage():
            client.record.write("epoch", why=record.getMessage())
        return False

    logger = logging.Logger(client.name)
    logger.addFilter(record_epoch_bump)
    return logger


def _record_delivery(client: Client) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        topic, partition, name = message.topic(), message.partition(), name_of(message.value())
        if error is not None:
            client.record.write("fail", topic=topic, p=partition, v=name, why=error.name())
        else:
            client.record.write("ack", topic=topic, p=partition, o=message.offset(), v=name)

    return delivered


def transact(client: Client) -> None:
    """Write transactions of up to five records to random partitions, and abort one in four."""
    number = 0
    while client.is_running:
        producer = _create_transactional_producer(client)
        if producer is None:
            continue
        while client.is_running:
            number += 1
            chosen = [client.random.randrange(PARTITIONS) for _ in range(client.random.randint(1, 5))]
            values = [[TRANSACTIONAL, part, f"{client.name}/{number}/{i}"] for i, part in enumerate(chosen)]
            client.record.write("txn", n=number, values=values, end="open")

            def send(producer: Producer = producer, values: list[list[Any]] = values) -> None:
                for topic, partition, name in values:
                    padding = client.random.randrange(200)
                    value = make_value(name, padding)
                    producer.produce(topic, value, partition=partition, on_delivery=_record_delivery(client))

            wants_abort = client.random.random() < 0.25
            end, is_usable = _run_transaction(client, producer, send, wants_abort=wants_abort)
            client.record.write("txn", n=number, values=values, end=end)
            if not is_usable:
                break
            time.sleep(_PAUSE_S)


def _create_transactional_producer(client: Client) -> Producer | None:
    producer = Producer(
        {
            **client.settings,
            "transactional.id": client.name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
        }
    )
    while client.is_running:
        try:
            producer.init_transactions(_CALL_S)
            return producer
        except KafkaException as error:
            client.record.note(f"init: {error}")
            if not error.args[0].retriable():
                return None
    return None


def _run_transaction(
    client: Client, producer: Producer, send: Callable[[], None], *, wants_abort: bool
) -> tuple[str, bool]:
    """Run a transaction. Return how it ended, and whether the producer can be used again."""
    commit_was_sent = False
    try:
        producer.begin_transaction()
        send()
        if wants_abort:
            producer.flush(_CALL_S)
        else:
            commit_was_sent = True
            _retry(client, producer.commit_transaction)
            return "commit", True
    except Stuck as error:
        client.record.note(f"transaction: {error}")
        return "abort", False
    except KafkaException as error:
        client.record.note(f"transaction: {error}")
        if error.args[0].fatal() or not error.args[0].txn_requires_abort():
            return "unknown" if commit_was_sent else "abort", False
    try:
        _retry(client, producer.abort_transaction)
    except KafkaException as error:
        client.record.note(f"abort: {error}")
        return "unknown" if commit_was_sent else "abort", False
    # If a commit was sent before the abort, its outcome is unknown.
    return "unknown" if commit_was_sent else "abort", True


def _send_offsets(producer: Producer, offsets: list[TopicPartition], consumer: Consumer) -> None:
    """Send offsets in a thread, which is abandoned with its producer if the call does not return.

    When librdkafka loses all connections, it forgets all brokers and bootstraps again. But it still waits for a
    connection to the old group coordinator, and looks for another coordinator only when connections open or close. In a
    healthy cluster, it then waits forever and ignores its timeout (confluentinc/librdkafka, issues 5456 and 5511). The
    next producer with the same transactional id fences the abandoned one.
    """
    failed: list[KafkaException] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _CALL_S)
        except KafkaException as error:
            failed.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(_STUCK_S)
    if sending.is_alive():
        raise Stuck(f"send_offsets_to_transaction did not return within {_STUCK_S:g} s")
    if failed:
        raise failed[0]


def _retry(client: Client, call: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _FLUSH_S
    while True:
        try:
            call(_CALL_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            client.record.note(f"retry: {error}")


# -- consumers --


def read(client: Client, topic: str) -> None:
    """Read all partitions from the beginning."""
    consumer = Consumer(
        {
            **client.settings,
            "group.id": f"reader-{client.name}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    client.record.write("assign", a=1, topic=topic, p=[*range(PARTITIONS)])
    while client.is_running:
        _record_polled(client, 1, consumer.consume(500, timeout=0.2))
    consumer.close()


def join_group(client: Client, *, protocol: str) -> None:
    """Consume as a member of a group, and commit the offsets."""
    group = f"group-{protocol}"
    membership = _Membership(client, PLAIN, group)
    settings = {"session.timeout.ms": SESSION_TIMEOUT_MS} if protocol == "classic" else {}
    consumer = Consumer(
        {
            **client.settings,
            **settings,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(
        [PLAIN], on_assign=membership.on_assign, on_revoke=membership.on_revoke, on_lost=membership.on_revoke
    )
    next_commit = time.monotonic() + 1
    while client.is_running:
        for number in range(100):
            message = consumer.poll(0 if number else 0.2)
            if message is None:
                break
            membership.add_message(message)
        membership.record_polls()
        if membership.positions and time.monotonic() > next_commit:
            next_commit = time.monotonic() + client.random.random()
            _commit(client, consumer, group, dict(membership.positions))
    consumer.close()


class _Membership:
    """The assigned partitions of a member, with the assignment and the position of each."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        self._client, self._topic, self._group = client, topic, group
        self._number = int(time.monotonic() * 1000)  # different from those of an earlier process
        self._assignments: dict[int, int] = {}
        """Partition → the number of its assignment."""
        self._read: dict[tuple[int, int], list[list[Any]]] = defaultdict(list)
        self.positions: dict[int, int] = {}
        """Partition → the next offset to read."""

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._number += 1
        assigned = sorted(partition.partition for partition in partitions)
        self._assignments |= dict.fromkeys(assigned, self._number)
        self._client.record.write("assign", a=self._number, group=self._group, topic=self._topic, p=assigned)

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._assignments.pop(partition.partition, None)
            self.positions.pop(partition.partition, None)

    def add_message(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if (error := message.error()) is not None:
            self._client.record.note(f"poll: {error}")
        else:
            assert partition is not None
            assert offset is not None
            self._read[self._assignments[partition], partition].append([offset, name_of(message.value())])
            self.positions[partition] = offset + 1

    def record_polls(self) -> None:
        for (assignment, partition), records in self._read.items():
            self._client.record.write("poll", a=assignment, topic=self._topic, p=partition, r=records)
        self._read.clear()


def _commit(client: Client, consumer: Consumer, group: str, offsets: dict[int, int]) -> None:
    begun = time.monotonic_ns()
    partitions = [TopicPartition(PLAIN, number, offset) for number, offset in offsets.items()]
    # Recorded before the commit, because this process may be killed while it waits for the response.
    client.record.write("commit", b=begun, group=group, topic=PLAIN, offsets=offsets, ok=False, why="requested")
    error: KafkaError | None = None
    try:
        results = consumer.commit(offsets=partitions, asynchronous=False) or []
        error = next((result.error for result in results if result.error is not None), None)
    except KafkaException as exception:
        error = exception.args[0]
    reason = {"why": error.name()} if error is not None else {}
    client.record.write("commit", b=begun, group=group, topic=PLAIN, offsets=offsets, ok=error is None, **reason)


def _record_polled(client: Client, assignment: int, messages: list[Message]) -> None:
    """Record the messages that were read."""
    polled: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
    for message in messages:
        if (error := message.error()) is not None:
            client.record.note(f"poll: {error}")
            continue
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        polled[topic, partition].append([message.offset(), name_of(message.value())])
    for (topic, partition), records in polled.items():
        client.record.write("poll", a=assignment, topic=topic, p=partition, r=records)


def copy(client: Client) -> None:
    """Read, write and commit the offsets in one transaction, so that every record is copied once."""
    number = int(time.monotonic() * 1000)  # different from those of an earlier process
    while client.is_running:
        consumer = Consumer(
            {
                **client.settings,
                "group.id": COPIERS,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([PLAIN])
        producer = _create_transactional_producer(client)
        while producer is not None and client.is_running:
            messages = [message for message in consumer.consume(500, timeout=0.3) if message.error() is None]
            if not messages:
                continue
            number += 1
            values = [[COPY, message.partition(), name_of(message.value())] for message in messages]
            client.record.write("txn", n=number, values=values, end="open")

            def send(
                producer: Producer = producer, messages: list[Message] = messages, consumer: Consumer = consumer
            ) -> None:
                for message in messages:
                    producer.produce(COPY, message.value(), partition=message.partition() or 0)
                ends = {message.partition() or 0: (message.offset() or 0) + 1 for message in messages}
                offsets = [TopicPartition(PLAIN, partition, end) for partition, end in ends.items()]
                _send_offsets(producer, offsets, consumer)

            end, _ = _run_transaction(client, producer, send, wants_abort=client.random.random() < 0.1)
            client.record.write("txn", n=number, values=values, end=end)
            if end != "commit":
                break  # the records must be read again from the committed offsets
        consumer.close()


ROLES: Final[dict[str, Callable[[Client], None]]] = {
    "producer": lambda client: produce(client, delivery_ms=120_000),
    "hasty-producer": lambda client: produce(client, delivery_ms=6_000),
    "transactional": transact,
    "plain-reader": lambda client: read(client, PLAIN),
    "tx-reader": lambda client: read(client, TRANSACTIONAL),
    "classic-member": lambda client: join_group(client, protocol="classic"),
    "consumer-member": lambda client: join_group(client, protocol="consumer"),
    "copier": copy,
}


def main() -> None:
    folder, servers, seed, *roles = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    errors: list[str] = []

    def handle_error(arguments: threading.ExceptHookArgs) -> None:
        errors.append(f"{arguments.thread.name if arguments.thread else ''}: {arguments.exc_value!r}")
        traceback.print_exception(arguments.exc_value)
        stopping.set()

    threading.excepthook = handle_error
    threads = []
    for argument in roles:
        role, name = argument.split(":")
        client = Client(Path(folder), servers, seed, name, stopping)
        threads.append(threading.Thread(target=ROLES[role], args=(client,), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # signal handlers run in between
    if errors:
        sys.exit("; ".join(errors))


if __name__ == "__main__":
    main()
