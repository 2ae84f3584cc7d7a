"""Producers, a coordinator and partitions on virtual time, with message loss, retries and failover, from one seed.

The coordinator runs the real rules on the real state machine; a failover may lose its uncommitted records. The
partitions are real logs on an in-memory disk. Producers are scripts: each waits for one response at a time, retries
lost requests and may stop at any point. Several producers compete for the same transactional id.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.coordinators.transactions.behaviour import TransactionBehaviour
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import complete_transaction, end_transaction, resume_ending
from ottla.coordinators.transactions.init_producer_id import initialize_producer
from ottla.coordinators.transactions.partitions import add_partitions, verify_partitions
from ottla.coordinators.transactions.records import transaction_record
from ottla.coordinators.transactions.state import (
    MAX_EPOCH,
    TopicPartition,
    Transaction,
    TransactionsState,
    TransactionStatus,
)
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
)
from ottla.protocol.wire.batch import read_batches, read_header
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.storage.log.opening import create_log
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.verification import Guard
from ottla.storage.log_environment import LogEnvironment
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, batch_of, entries_of
from ottla.storage.state_machine.machine import Machine
from tests.support.simulated_disk import SimulatedDisk

START_MS = 1_700_000_000_000
TIMEOUT_MS = 20_000
Answer = Callable[[Any], None]
Request = Callable[[Answer], None]
RETRIABLE = (ConcurrentTransactions, NotCoordinator, CoordinatorNotAvailable, RequestTimedOut)


@dataclass
class Attempt:
    """One transaction from the view of its producer."""

    name: str
    values: dict[TopicPartition, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The acknowledged records."""
    asked_to_commit: bool = False
    committed: bool | None = None
    """The outcome that the coordinator confirmed; None if it has not."""


class Replying:
    """A ticket that passes responses and errors to one function."""

    def __init__(self, reply: Answer) -> None:
        self._reply = reply

    def answer(self, response: Any, /) -> None:
        self._reply(response)

    def fail(self, error: ApiError, /) -> None:
        self._reply(error)


class Coordinator:
    """The coordinator of all transactions, under changing leaders."""

    def __init__(self, world: "World", version: int) -> None:
        self._world = world
        self.version = version
        self.epoch = 0
        self._log: list[list[Entry]] = []
        self._committed = 0
        self._timers: dict[Hashable, int] = {}
        self._behaviour = TransactionBehaviour(self.context)
        self._next_id = 1000
        self.machine = self._new_machine()

    def seed(self, transaction: Transaction) -> None:
        """Begin with a transaction in the log."""
        self._log.append([transaction_record(transaction, self.version)])

    def context(self, now_ms: int) -> Context:
        return Context(
            now_ms=now_ms, transaction_version=self.version, take_producer_id=self._take_id, marker_ticket=self._ending
        )

    def submit(self, decide: Callable[[TransactionsState, Context], Decision[Any]], reply: Answer) -> None:
        """Decide, and reply when the decision is committed."""
        machine = self.machine
        machine.submit("test", lambda state: decide(state, self.context(self._world.now_ms)), reply)

    def lead(self) -> None:
        """Load the log as the next leader does."""
        self.epoch += 1
        self.machine = self._new_machine()
        state = self._behaviour.empty_state()
        for entries in self._log:
            state = self._behaviour.replay(state, _through_bytes(self._behaviour.kinds, entries), 0)
        self._timers.clear()
        self.machine.activate(state, len(self._log) - 1)
        self.machine.submit(
            "loaded", lambda state: self._behaviour.on_loaded(state, self._world.now_ms), lambda _: None, first=True
        )
        self._world.post(self.commit)

    def fall_over(self) -> None:
        """Change the leader; uncommitted records may be lost."""
        self.machine.deactivate(NotCoordinator())
        kept = self._world.random.randint(self._committed, len(self._log))
        del self._log[kept:]
        self.lead()

    def commit(self) -> None:
        self._committed = len(self._log)
        self.machine.committed(self._committed - 1)

    def time_out_writes(self) -> None:
        """Time out the waiting replies; their records stay in the log."""
        self.machine.give_up(self._world.now_ms - 5000, CoordinatorNotAvailable())

    def run_timers(self) -> None:
        for key, at_ms in list(self._timers.items()):
            if at_ms <= self._world.now_ms:
                del self._timers[key]
                self.machine.submit("expired", self._on_expired(key), self._after_expired(key))

    def _on_expired(self, key: Hashable) -> Callable[[TransactionsState], Decision[Any]]:
        return lambda state: self._behaviour.on_timer(state, key, self._world.now_ms)

    def _after_expired(self, key: Hashable) -> Answer:
        """Retry an expiry that could not be written, as the runtime does."""

        def look(result: Any) -> None:
            if isinstance(result, ApiError) and self.machine.is_active:
                self._timers.setdefault(key, self._world.now_ms + 1000)

        return look

    def _new_machine(self) -> Machine[TransactionsState]:
        return Machine(
            append=self._append,
            apply=lambda state, entries, _: self._behaviour.replay(state, entries, self._world.now_ms),
            now_ms=lambda: self._world.now_ms,
            clock_ns=lambda: 0,
            set_timers=self._set_timers,
        )

    def _append(self, entries: Sequence[Entry], atomic: bool) -> int:
        if self._world.random.random() < 0.01:
            raise CoordinatorNotAvailable("the disk is full")
        self._log.append(list(entries))
        self._world.post(self.commit)
        return len(self._log) - 1

    def _set_timers(self, timers: Sequence[tuple[Hashable, int | None]]) -> None:
        for key, at_ms in timers:
            assert at_ms is not None
            self._timers[key] = at_ms

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # -- markers --

    def _ending(self, transaction: Transaction) -> Ticket:
        machine, epoch = self.machine, self.epoch

        def decided(result: Any) -> None:
            if not isinstance(result, ApiError):
                self._send_markers(machine, epoch, result)
            elif not isinstance(result, NotCoordinator):
                self._world.post(look_again)

        def look_again() -> None:
            if self.machine is machine:
                self.submit(
                    lambda state, context: resume_ending(state, context, transaction.transactional_id), lambda _: None
                )

        return Replying(decided)

    def _send_markers(self, machine: Machine[TransactionsState], epoch: int, transaction: Transaction) -> None:
        world, left = self._world, set(transaction.partitions)

        def write(where: TopicPartition) -> None:
            world.partitions[where].append_marker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                commit=transaction.status is TransactionStatus.PREPARE_COMMIT,
                coordinator_epoch=epoch,
                transaction_version=transaction.client_version,
                leader_epoch=0,
                now_ms=world.now_ms,
            )
            world.partitions[where].advance_high_watermark(world.partitions[where].log_end_offset)

        def late(where: TopicPartition) -> None:
            with suppress(ApiError):  # it is refused, as it should be, or repeats what is true
                write(where)

        def deliver(where: TopicPartition) -> None:
            if self.machine is not machine or world.is_lost():
                if self.machine is machine:
                    world.post(lambda: deliver(where))
                return
            try:
                write(where)
            except ApiError:
                return  # another coordinator was quicker
            if world.is_lost():
                world.post(lambda: deliver(where))
                return
            if self.version >= 2 and world.random.random() < 0.1:
                world.post(lambda: late(where))
            left.discard(where)
            finish()

        def finish() -> None:
            if not left and self.machine is machine:
                self.submit(lambda state, context: complete_transaction(state, context, transaction), completed)

        def completed(result: Any) -> None:
            if isinstance(result, ApiError) and not isinstance(result, NotCoordinator):
                world.post(finish)

        for where in sorted(transaction.partitions):  # the same for the same seed
            world.post(lambda where=where: deliver(where))  # type: ignore[misc]
        finish()


def _through_bytes(kinds: Any, entries: list[Any]) -> list[Entry]:
    """Read back what was written."""
    data = batch_of(entries, timestamp=START_MS)
    return list(entries_of(kinds, data, 0, read_header(data, 0)))


class World:
    """The whole simulation and its pending events."""

    def __init__(self, seed: int, version: int, *, transactional_ids: int = 2, partitions: int = 3) -> None:
        self.random = Random(seed)
        self.version = version
        self.now_ms = START_MS
        self.actions: list[Callable[[], None]] = []
        self.is_quiet = False
        disk = SimulatedDisk(seed)
        disk.make_dir("/data")
        self.partitions: dict[TopicPartition, PartitionLog] = {
            TopicPartition("t", number): create_log(
                LogEnvironment(disk=disk, random=Random(seed)),
                f"/data/t-{number}",
                "t",
                number,
                LogSettings(),
                now_ms=START_MS,
            )
            for number in range(partitions)
        }
        self.coordinator = Coordinator(self, version)
        self.ids = [f"id{number}" for number in range(transactional_ids)]
        # One producer has few epochs left.
        self.coordinator.seed(
            Transaction(self.ids[0], 999, MAX_EPOCH - self.random.randint(1, 6), TIMEOUT_MS, updated_ms=START_MS)
        )
        self.coordinator.lead()
        self.attempts: list[Attempt] = []
        self._producers = 0

    def post(self, action: Callable[[], None]) -> None:
        """Schedule an event at a random time."""
        self.actions.append(action)

    def is_lost(self) -> bool:
        return not self.is_quiet and self.random.random() < 0.08

    def run(self, steps: int) -> None:
        """Run events in random order."""
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.03 and self._producers < 25:
                self._begin_producer()
            elif chance < 0.04:
                self.coordinator.fall_over()
            elif chance < 0.07:
                self._pass_time(self.random.randint(0, 8000))
            elif self.actions:
                self._act()

    def settle(self) -> None:
        """Stop producers and faults, and finish everything in progress."""
        self.is_quiet = True
        for _ in range(6):
            while self.actions:
                self._act()
            self._pass_time(TIMEOUT_MS)
        while self.actions:
            self._act()

    def _act(self) -> None:
        self.actions.pop(self.random.randrange(len(self.actions)))()

    def _pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.coordinator.run_timers()
        self.coordinator.time_out_writes()

    # -- producers --

    def _begin_producer(self) -> None:
        self._producers += 1
        script = Script(self, self.random.choice(self.ids), f"p{self._producers}")
        self.post(lambda: self._go_on(script.run(), None))

    def _go_on(self, script: Generator[Request, Any, None], answer: Any) -> None:
        if self.is_quiet:
            return
        try:
            request = script.send(answer)
        except StopIteration:
            return
        is_answered = [False]

        def reply(result: Any) -> None:
            if not is_answered[0]:
                is_answered[0] = True
                self.post(lambda: self._go_on(script, result))

        if self.is_lost():
            reply(RequestTimedOut())
            if self.version >= 2:
                self.post(lambda: request(lambda _: None))  # it arrives, when its sender has given up on it
        elif self.is_lost():
            self.post(lambda: request(lambda _: reply(RequestTimedOut())))
        else:
            self.post(lambda: request(reply))

    # -- partitions --

    def produce(
        self, id_: str, producer_id: int, epoch: int, where: TopicPartition, sequence: int, value: str
    ) -> Request:
        """Produce one record: verify the partition with the coordinator if necessary, then append."""
        log = self.partitions[where]
        data = build_batch(
            [Record(0, self.now_ms, None, value.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

        def request(reply: Answer) -> None:
            try:
                guard = log.producers.start_verification(
                    producer_id, epoch, sequence, names_epochs=self.version >= 2, now_ms=self.now_ms
                )
            except ApiError as error:
                reply(error)
                return
            if guard is None:
                append(None, reply)
            else:
                self.post(lambda: self._check(id_, producer_id, epoch, where, lambda found: go_on(guard, found, reply)))

        def go_on(guard: Guard, found: Any, reply: Answer) -> None:
            if isinstance(found, ApiError):
                reply(found)
            else:
                self.post(lambda: append(guard, reply))

        def append(guard: Guard | None, reply: Answer) -> None:
            batch = bytearray(data)
            try:
                log.producers.check_verified(read_header(batch, 0), guard)
                log.append(batch, leader_epoch=0, now_ms=self.now_ms)
            except ApiError as error:
                reply(error)
                return
            log.advance_high_watermark(log.log_end_offset)
            reply(None)

        return request

    def _check(self, id_: str, producer_id: int, epoch: int, where: TopicPartition, reply: Answer) -> None:
        def decide(state: TransactionsState, context: Context) -> Decision[Any]:
            if self.version >= 2:
                return add_partitions(state, context, id_, producer_id, epoch, [where], client_version=2, reply=None)
            return Decision((), verify_partitions(state, id_, producer_id, epoch, [where])[where])

        self.coordinator.submit(decide, reply)

    # -- readers --

    def committed(self, where: TopicPartition) -> list[str]:
        """Return the records that a read_committed consumer reads."""
        log = self.partitions[where]
        found = read(log, 0, 1 << 40, Isolation.LAST_STABLE)
        if found.records is None:
            return []
        data = log.environment.disk.pread(found.records.file.number, found.records.size, found.records.position)
        aborted = sorted(found.aborted or [], key=lambda each: each.first_offset)
        skipping: set[int] = set()
        values = []
        for pos, header in read_batches(data, partial_tail=True):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipping.add(aborted.pop(0).producer_id)
            if header.is_control:
                if control_type(next(iter(read_records(data, pos, header)))) is ControlType.ABORT:
                    skipping.discard(header.producer_id)
            elif header.producer_id not in skipping:
                values += [record.value.decode() for record in read_records(data, pos, header) if record.value]
        return values


class Script:
    """One producer, request by request."""

    def __init__(self, world: World, id_: str, name: str) -> None:
        self._world = world
        self._id = id_
        self._name = name
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    def run(self) -> Generator[Request, Any, None]:
        random = self._world.random
        found = yield from self._until_told(
            lambda state, context: initialize_producer(state, context, self._id, TIMEOUT_MS, None)
        )
        if isinstance(found, ApiError):
            return
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        for number in range(random.randint(1, 6)):
            attempt = Attempt(f"{self._name}/{number}")
            self._world.attempts.append(attempt)
            is_whole = yield from self._write(attempt)
            if is_whole is None or random.random() < 0.1:
                return
            ended = yield from self._end_transaction(attempt, is_whole and random.random() < 0.7)
            if not ended:
                return

    def _write(self, attempt: Attempt) -> Generator[Request, Any, bool | None]:
        """Return whether all succeeded; None if the producer must stop."""
        random, added = self._world.random, set[TopicPartition]()
        for number in range(random.randint(1, 5)):
            where = random.choice(list(self._world.partitions))
            if self._world.version < 2 and where not in added:
                error = yield from self._until_told(self._add_partitions(where))
                if error is not None:
                    return None
                added.add(where)
            sequence, value = self._sequences.get(where, 0), f"{attempt.name}/{number}"
            error = RequestTimedOut()
            while isinstance(error, RETRIABLE):
                error = yield self._world.produce(self._id, self.producer_id, self.epoch, where, sequence, value)
            if error is not None:
                return None
            self._sequences[where] = sequence + 1
            attempt.values[where].append(value)
        return True

    def _add_partitions(self, where: TopicPartition) -> Callable[[TransactionsState, Context], Decision[Any]]:
        producer_id, epoch = self.producer_id, self.epoch  # as sent, whenever it arrives
        return lambda state, context: add_partitions(
            state, context, self._id, producer_id, epoch, [where], client_version=0, reply=None
        )

    def _end_transaction(self, attempt: Attempt, commit: bool) -> Generator[Request, Any, bool]:
        attempt.asked_to_commit = commit
        version, producer_id, epoch = self._world.version, self.producer_id, self.epoch
        found = yield from self._until_told(
            lambda state, context: end_transaction(
                state, context, self._id, producer_id, epoch, commit=commit, client_version=version
            )
        )
        if isinstance(found, ApiError):
            return False
        attempt.committed = commit
        if version >= 2:
            self.producer_id, self.epoch = found.producer_id, found.producer_epoch
            self._sequences.clear()
        return True

    def _until_told(
        self, decide: Callable[[TransactionsState, Context], Decision[Any]]
    ) -> Generator[Request, Any, Any]:
        while True:
            answer = yield lambda reply: self._world.coordinator.submit(decide, reply)
            if not isinstance(answer, RETRIABLE):
                return answer
