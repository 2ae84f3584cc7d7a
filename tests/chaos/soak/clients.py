"""The clients of librdkafka that work while nodes and network fail, as `python -m tests.chaos.soak.clients`.

    python -m tests.chaos.soak.clients FOLDER SERVERS SEED ROLE:NAME...

Each role is a thread, which writes the history of its name into the folder. SIGTERM lets all come to an end in order.
SIGUSR1 has it tell where they are.
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

from tests.chaos.soak.history import Recorder, name_of, named
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
    """A call of librdkafka does not come back."""


class Client:
    """What every role needs: where the cluster is, chance, and whether to go on."""

    def __init__(self, folder: Path, servers: str, seed: str, name: str, stopping: threading.Event) -> None:
        self.name = name
        self.random = Random(f"{seed} {name}")
        self.record = Recorder(folder, name)
        self.stopping = stopping
        self.settings: dict[str, Any] = {"bootstrap.servers": servers, "client.id": name, **QUICK}

    @property
    def goes_on(self) -> bool:
        return not self.stopping.is_set()


# -- producers --


def produce(client: Client, *, delivery_ms: int) -> None:
    """Idempotent, acks=all. Whoever gave up a record goes on with the next ones."""
    sent: dict[int, int] = defaultdict(int)
    lives = 0
    while client.goes_on:
        lives += 1
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
            logger=_notes_of_epochs(client),
        )
        while client.goes_on:
            partition = client.random.randrange(PARTITIONS)
            name = f"{client.name}.{lives}/{partition}/{sent[partition]}"
            value = named(name, client.random.randrange(300))
            try:
                producer.produce(PLAIN, value, partition=partition, on_delivery=_delivered(client))
                sent[partition] += 1
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                client.record.note(f"cannot go on: {error}")
                break
            producer.poll(0)
            time.sleep(_PAUSE_S)
        left = producer.flush(_FLUSH_S)
        if left:
            client.record.note(f"{left} records were never answered")


def _notes_of_epochs(client: Client) -> logging.Logger:
    """Writes down why a producer goes on with another epoch, in which it may write twice."""

    def is_told(record: logging.LogRecord) -> bool:
        if "epoch bump" in record.getMessage():
            client.record.write("epoch", why=record.getMessage())
        return False

    logger = logging.Logger(client.name)
    logger.addFilter(is_told)
    return logger


def _delivered(client: Client) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        topic, partition, name = message.topic(), message.partition(), name_of(message.value())
        if error is not None:
            client.record.write("fail", topic=topic, p=partition, v=name, why=error.name())
        else:
            client.record.write("ack", topic=topic, p=partition, o=message.offset(), v=name)

    return delivered


def transact(client: Client) -> None:
    """Transactions of some records for some partitions; one in four is aborted."""
    number = 0
    while client.goes_on:
        producer = _transactional(client)
        if producer is None:
            continue
        while client.goes_on:
            number += 1
            chosen = [client.random.randrange(PARTITIONS) for _ in range(client.random.randint(1, 5))]
            values = [[TRANSACTIONAL, part, f"{client.name}/{number}/{i}"] for i, part in enumerate(chosen)]
            client.record.write("txn", n=number, values=values, end="open")

            def send(producer: Producer = producer, values: list[list[Any]] = values) -> None:
                for topic, partition, name in values:
                    padding = client.random.randrange(200)
                    producer.produce(topic, named(name, padding), partition=partition, on_delivery=_delivered(client))

            wants_abort = client.random.random() < 0.25
            end, usable = _run_transaction(client, producer, send, wants_abort=wants_abort)
            client.record.write("txn", n=number, values=values, end=end)
            if not usable:
                break
            time.sleep(_PAUSE_S)


def _transactional(client: Client) -> Producer | None:
    producer = Producer(
        {
            **client.settings,
            "transactional.id": client.name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
        }
    )
    while client.goes_on:
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
    """How a transaction ended, and whether the producer can be used again."""
    asked_to_commit = False
    try:
        producer.begin_transaction()
        send()
        if wants_abort:
            producer.flush(_CALL_S)
        else:
            asked_to_commit = True
            _until_answered(client, producer.commit_transaction)
            return "commit", True
    except Stuck as error:
        client.record.note(f"transaction: {error}")
        return "abort", False
    except KafkaException as error:
        client.record.note(f"transaction: {error}")
        if error.args[0].fatal() or not error.args[0].txn_requires_abort():
            return "unknown" if asked_to_commit else "abort", False
    try:
        _until_answered(client, producer.abort_transaction)
    except KafkaException as error:
        client.record.note(f"abort: {error}")
        return "unknown" if asked_to_commit else "abort", False
    # Whoever asked to commit and was told to abort instead cannot know what the coordinator made of the first.
    return "unknown" if asked_to_commit else "abort", True


def _send_offsets(producer: Producer, offsets: list[TopicPartition], of: Consumer) -> None:
    """In a thread of its own, which is left behind with its producer where the call does not come back.

    Where all connections are lost, librdkafka gives up all brokers that it knew and begins anew. It still remembers the
    one that coordinated the group, waits for its connection, and looks for another only when connections come or go:
    once all is well again it waits for ever, whatever timeout it was told (confluentinc/librdkafka, issues 5456 and
    5511). The next producer of the same name fences the one that waits.
    """
    failed: list[KafkaException] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, of.consumer_group_metadata(), _CALL_S)
        except KafkaException as error:
            failed.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(_STUCK_S)
    if sending.is_alive():
        raise Stuck(f"offsets were not sent within {_STUCK_S:g} s")
    if failed:
        raise failed[0]


def _until_answered(client: Client, call: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _FLUSH_S
    while True:
        try:
            call(_CALL_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            client.record.note(f"again: {error}")


# -- consumers --


def read(client: Client, topic: str) -> None:
    """All partitions from the beginning, and on."""
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
    while client.goes_on:
        _note_polled(client, 1, consumer.consume(500, timeout=0.2))
    consumer.close()


def belong(client: Client, *, protocol: str) -> None:
    """A member of a group, which commits what it has read."""
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
    consumer.subscribe([PLAIN], on_assign=membership.assigned, on_revoke=membership.revoked, on_lost=membership.revoked)
    next_commit = time.monotonic() + 1
    while client.goes_on:
        for number in range(100):
            message = consumer.poll(0 if number else 0.2)
            if message is None:
                break
            membership.take(message)
        membership.write_down()
        if membership.reached and time.monotonic() > next_commit:
            next_commit = time.monotonic() + client.random.random()
            _commit(client, consumer, group, dict(membership.reached))
    consumer.close()


class _Membership:
    """Which partitions a member has, since when, and how far it has read them."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        self._client, self._topic, self._group = client, topic, group
        self._number = int(time.monotonic() * 1000)  # others than in its last life
        self._since: dict[int, int] = {}
        self._read: dict[tuple[int, int], list[list[Any]]] = defaultdict(list)
        self.reached: dict[int, int] = {}
        """Partition → where reading goes on."""

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._number += 1
        given = sorted(each.partition for each in partitions)
        self._since |= dict.fromkeys(given, self._number)
        self._client.record.write("assign", a=self._number, group=self._group, topic=self._topic, p=given)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._since.pop(each.partition, None)
            self.reached.pop(each.partition, None)

    def take(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if (error := message.error()) is not None:
            self._client.record.note(f"poll: {error}")
        else:
            assert partition is not None
            assert offset is not None
            self._read[self._since[partition], partition].append([offset, name_of(message.value())])
            self.reached[partition] = offset + 1

    def write_down(self) -> None:
        for (assignment, partition), found in self._read.items():
            self._client.record.write("poll", a=assignment, topic=self._topic, p=partition, r=found)
        self._read.clear()


def _commit(client: Client, consumer: Consumer, group: str, offsets: dict[int, int]) -> None:
    begun = time.monotonic_ns()
    wanted = [TopicPartition(PLAIN, number, offset) for number, offset in offsets.items()]
    # Whoever is killed meanwhile has asked all the same.
    client.record.write("commit", b=begun, group=group, topic=PLAIN, offsets=offsets, ok=False, why="asked")
    error: KafkaError | None = None
    try:
        answers = consumer.commit(offsets=wanted, asynchronous=False) or []
        error = next((each.error for each in answers if each.error is not None), None)
    except KafkaException as failed:
        error = failed.args[0]
    why = {"why": error.name()} if error is not None else {}
    client.record.write("commit", b=begun, group=group, topic=PLAIN, offsets=offsets, ok=error is None, **why)


def _note_polled(client: Client, assignment: int, messages: list[Message]) -> None:
    """Write down what was read."""
    polled: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
    for message in messages:
        if (error := message.error()) is not None:
            client.record.note(f"poll: {error}")
            continue
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        polled[topic, partition].append([message.offset(), name_of(message.value())])
    for (topic, partition), found in polled.items():
        client.record.write("poll", a=assignment, topic=topic, p=partition, r=found)


def copy(client: Client) -> None:
    """Read, write and commit the offsets in one transaction: every record is copied once."""
    number = int(time.monotonic() * 1000)  # another one than in its last life
    while client.goes_on:
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
        producer = _transactional(client)
        while producer is not None and client.goes_on:
            messages = [each for each in consumer.consume(500, timeout=0.3) if each.error() is None]
            if not messages:
                continue
            number += 1
            values = [[COPY, each.partition(), name_of(each.value())] for each in messages]
            client.record.write("txn", n=number, values=values, end="open")

            def send(
                producer: Producer = producer, messages: list[Message] = messages, of: Consumer = consumer
            ) -> None:
                for each in messages:
                    producer.produce(COPY, each.value(), partition=each.partition() or 0)
                ends = {each.partition() or 0: (each.offset() or 0) + 1 for each in messages}
                offsets = [TopicPartition(PLAIN, partition, end) for partition, end in ends.items()]
                _send_offsets(producer, offsets, of)

            end, _ = _run_transaction(client, producer, send, wants_abort=client.random.random() < 0.1)
            client.record.write("txn", n=number, values=values, end=end)
            if end != "commit":
                break  # what was read must be read again, from where the group is
        consumer.close()


ROLES: Final[dict[str, Callable[[Client], None]]] = {
    "producer": lambda client: produce(client, delivery_ms=120_000),
    "hasty-producer": lambda client: produce(client, delivery_ms=6_000),
    "transactional": transact,
    "plain-reader": lambda client: read(client, PLAIN),
    "tx-reader": lambda client: read(client, TRANSACTIONAL),
    "classic-member": lambda client: belong(client, protocol="classic"),
    "consumer-member": lambda client: belong(client, protocol="consumer"),
    "copier": copy,
}


def main() -> None:
    folder, servers, seed, *roles = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    broken: list[str] = []

    def fell_over(what: threading.ExceptHookArgs) -> None:
        broken.append(f"{what.thread.name if what.thread else ''}: {what.exc_value!r}")
        traceback.print_exception(what.exc_value)
        stopping.set()

    threading.excepthook = fell_over
    threads = []
    for each in roles:
        role, name = each.split(":")
        client = Client(Path(folder), servers, seed, name, stopping)
        threads.append(threading.Thread(target=ROLES[role], args=(client,), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # signals are handled in between
    if broken:
        sys.exit("; ".join(broken))


if __name__ == "__main__":
    main()
