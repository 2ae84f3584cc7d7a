"""A whole cluster in one thread: brokers on simulated disks, the controller's decisions, one clock, one network.

    world = World(seed=7)
    world.create("t", partitions=2)
    writer = world.write("t", 0)            # an idempotent producer with acks=all, which tries again until it succeeds
    world.run(500)
    world.kill(world.leader("t", 0))        # SIGKILL: what was written stays in the file
    world.run(2_000)
    world.heal()
    world.check()

Brokers are the real ones from the request on: dispatch, handlers, partitions, fetchers, logs. Only sockets and event
loop are not there: requests and answers are bytes that arrive after a while, or never. One seed gives one history.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from heapq import heappop, heappush
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.handlers.registry import BROKER_ENDPOINTS
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Client
from ottla.broker.requests.dispatch import Dispatch
from ottla.config.settings.topics import effective_topic_settings
from ottla.metadata.controller.alter_partition import alter_partition
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.partition_reassignments import alter_partition_reassignments
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import Partition as Assignment
from ottla.protocol.errors import ApiError, NetworkFailed, by_code, name_of
from ottla.protocol.messages.apis import BY_KEY, Listeners
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.protocol.wire.types import Chunk
from ottla.replication.fetch_requests import FetchLimits
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.fetcher import Fetcher, Lane
from ottla.replication.fetchers import FetcherId, Fetchers
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Expirations
from ottla.replication.runtime import Runtime
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.truncation_queue import TruncationQueue
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.node_files import NodeMeta
from ottla.storage.disk import FileRange
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings
from ottla.storage.log_environment import InlineBackground
from ottla.storage.threads import Threads
from tests.support.clock import Call
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.unit.metadata.controller import cluster as controllers

LAG_MS = 2_000
HEARTBEAT_MS = 200
SESSION_MS = 1_000
LIMITS = FetchLimits(max_wait_ms=100, partition_max_bytes=2_000, response_max_bytes=5_000, backoff_ms=200)
FETCH_TIMEOUT_MS = 1_000
PATH = "/logs"


class World:
    """Time, network, controller and brokers."""

    def __init__(self, seed: int, *, brokers: int = 3, settings: dict[str, str] | None = None) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self._calls: list[tuple[int, int, Call]] = []
        self._numbers = count()
        self.cut_off: set[int] = set()
        """Brokers that nobody can reach."""
        self.slow: set[int] = set()
        """Brokers whose network takes its time."""
        self.writers: list[Writer] = []
        self.controller = Controller(self, settings or {})
        self.brokers = {number: SimulatedBroker(self, number) for number in range(1, brokers + 1)}
        for broker in self.brokers.values():
            broker.start()
        self.run_until(lambda: len(self.controller.image.alive_brokers) == brokers)
        self._tick()

    # -- time --

    def clock_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Call:
        call = Call(self.now_ms + round(delay_s * 1000), callback)
        heappush(self._calls, (self.now_ms + round(delay_s * 1000), next(self._numbers), call))
        return call

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self.call_later(0, callback)

    def run(self, ms: int) -> None:
        end = self.now_ms + ms
        while self._calls and self._calls[0][0] <= end:
            self._step()
        self.now_ms = end

    def run_until(self, holds: Callable[[], bool], ms: int = 60_000) -> None:
        end = self.now_ms + ms
        while not holds():
            assert self._calls, "nothing more will happen"
            assert self.now_ms < end, f"not within {ms} ms"
            self._step()

    def _step(self) -> None:
        at_ms, _, call = heappop(self._calls)
        self.now_ms = max(self.now_ms, at_ms)
        if not call.is_cancelled:
            call.callback()

    def _tick(self) -> None:
        """What the controller looks at again and again; and what must hold all the time."""
        self.controller.now_ms = self.now_ms
        while self.controller.fence_one():
            pass
        for partition in self.assignments():
            assert {*partition.isr} <= {*partition.replicas}
        self.call_later(0.05, self._tick)

    # -- network --

    def deliver(self, one: int, other: int, what: Callable[[], None]) -> None:
        """Let something arrive, or not; the controller is 0."""
        if one in self.cut_off or other in self.cut_off:
            return
        longest = 60 if one in self.slow or other in self.slow else 4
        self.call_later(self.random.randint(0, longest) / 1000, what)

    # -- brokers --

    def kill(self, number: int, *, power: bool = False, survival: Survival | None = None) -> None:
        """End a broker's process, or its whole machine: then what was not synced may be lost."""
        self.brokers[number].kill(power=power, survival=survival)

    def start(self, number: int) -> None:
        self.brokers[number].start()

    def heal(self) -> None:
        """All is well again: wait until everything is in sync."""
        self.cut_off.clear()
        self.slow.clear()
        for broker in self.brokers.values():
            if not broker.is_alive:
                broker.start()
        self.run_until(self._is_well, 120_000)

    def _is_well(self) -> bool:
        """Whether all brokers are in service, in the lives that they are in now, and all replicas in sync."""
        known = self.controller.image.brokers
        in_service = all(
            broker.number in known and known[broker.number].epoch == broker.epoch and not known[broker.number].fenced
            for broker in self.brokers.values()
        )
        return in_service and all(len(each.isr) == len(each.replicas) for each in self.assignments())

    # -- topics --

    def create(
        self, name: str, *, partitions: int = 1, replicas: int = 3, configs: dict[str, str] | None = None
    ) -> None:
        self.controller.now_ms = self.now_ms
        self.controller.create(name, partitions=partitions, factor=replicas, configs=configs)
        self.run(200)

    def write(self, topic: str, partition: int) -> "Writer":
        """Begin to write to a partition."""
        writer = Writer(self, topic, partition, producer_id=1000 + len(self.writers))
        self.writers.append(writer)
        return writer

    def check(self) -> None:
        """All writers come to an end; nothing acknowledged was lost, and all replicas are the same."""
        for writer in self.writers:
            writer.is_stopped = True
        self.run_until(lambda: all(writer.is_idle for writer in self.writers))
        self.run(2 * FETCH_TIMEOUT_MS)
        self.check_same()
        for writer in self.writers:
            writer.check()

    def move(self, topic: str, partition: int, *replicas: int) -> None:
        """Begin to move a partition to other brokers."""
        self.controller.now_ms = self.now_ms
        wanted = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[wanted])])
        (answer,) = self.controller.ask(alter_partition_reassignments, request).responses
        assert not answer.partitions[0].error_code, answer

    def assignments(self) -> Iterator[Assignment]:
        for topic in self.controller.image.topics.values():
            yield from topic.partitions

    def leader(self, topic: str, number: int) -> int:
        return self.controller.partition(topic, number).leader

    def logs_of(self, topic: str, number: int) -> dict[int, PartitionLog]:
        """The logs of a partition on the brokers that run."""
        replicas = self.controller.partition(topic, number).replicas
        found = {replica: self.brokers[replica].log(topic, number) for replica in replicas}
        return {replica: log for replica, log in found.items() if log is not None}

    def check_prefixes(self) -> None:
        """What is committed is the same on all replicas that know it is."""
        for name, topic in self.controller.image.topics.items():
            for number in range(len(topic.partitions)):
                logs = self.logs_of(name, number)
                contents = {replica: content(log, log.high_watermark) for replica, log in logs.items()}
                longest = max(contents.values(), key=len, default=b"")
                for replica, found in contents.items():
                    assert longest.startswith(found), f"{name}-{number} on {replica}: {logs}"

    def check_same(self) -> None:
        """All replicas have the same, and all of it is committed."""
        for name, topic in self.controller.image.topics.items():
            for number, partition in enumerate(topic.partitions):
                logs = self.logs_of(name, number)
                assert len(logs) == len(partition.replicas)
                ends = {replica: (log.log_start_offset, log.log_end_offset) for replica, log in logs.items()}
                assert len({*ends.values()}) == 1, f"{name}-{number}: {ends}"
                assert len({content(log, log.log_end_offset) for log in logs.values()}) == 1
                # A term in which nothing was written is known to its leader alone.
                terms = {
                    tuple(each for each in log.epochs.entries if each[1] < log.log_end_offset) for log in logs.values()
                }
                assert len(terms) == 1, f"{name}-{number}: {terms}"


class Controller(controllers.Cluster):
    """The active controller: what it writes reaches brokers after a while, each at its own time."""

    def __init__(self, world: World, settings: dict[str, str]) -> None:
        self.world = world
        self.log: list[object] = []
        super().__init__(seed=world.random.randrange(1 << 30), settings=settings)
        self.heartbeats.session_timeout_ms = SESSION_MS

    def apply(self, decision: Decision[Any]) -> Any:
        reply = super().apply(decision)
        self.log += self.written
        if self.written and hasattr(self.world, "brokers"):
            for broker in self.world.brokers.values():
                broker.tell_of_metadata()
        return reply

    def decide(self, request: Any) -> Any:
        """The answer to a broker's request."""
        self.now_ms = self.world.now_ms
        if isinstance(request, BrokerHeartbeatRequest):
            return self.beat(request.broker_id, broker_epoch=request.broker_epoch,
                             current_metadata_offset=request.current_metadata_offset)  # fmt: skip
        return self.ask(alter_partition, request)


class SimulatedBroker:
    """One broker; it has a disk for ever, and the rest as long as its process lives."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.disk = SimulatedDisk(seed=number, now_ms=world.clock_ms)
        self.disk.make_dir(PATH)
        self.disk.sync_dir("/")
        self.life = 0
        self.is_alive = False
        self.epoch = -1
        self._is_registered = False
        self.position = 0
        self.image: Image = EMPTY
        self.partitions: Partitions | None = None

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_alive = True
        self.epoch, self.position, self.image = -1, 0, EMPTY
        self._is_registered = False
        meta = NodeMeta("a-cluster", self.number, directory_id=controllers.directory(self.number))
        directory = LogDirectory(PATH, meta, disk=self.disk, background=InlineBackground(), random=Random(self.number))
        logs = Logs([directory])
        logs.load(lambda _: LogSettings(), world.now_ms)
        loop: Any = SimpleNamespace(call_later=self._later)
        runtime = Runtime(loop, now_ms=world.clock_ms, threads=cast(Threads, InlineBackground()))
        self.completions, self.timer = runtime.completions, runtime.timer
        self.partitions = Partitions(self.number, logs, runtime, settings_of=_settings_of)
        cuts = TruncationQueue(logs, self._soon, world.clock_ms)
        throttle = ReplicationThrottle("follower", self.number, now_ms=world.clock_ms)

        def open_fetcher(fetcher_id: FetcherId, on_failed: Callable[[Partition], None]) -> SimulatedFetcher:
            running = SimulatedFetcher(self)
            running.fetcher = Fetcher(
                self.number,
                fetcher_id[0],
                LIMITS,
                logs,
                cuts,
                broker_epoch=lambda: self.epoch,
                throttle=throttle,
                on_failed=on_failed,
                on_ready=running.wake,
            )
            return running

        self.fetchers = Fetchers(open_fetcher)
        changes = IsrChanges(
            self.number,
            self._ask_controller,
            broker_epoch=lambda: self.epoch,
            call_later=self._later,
            completions=self.completions,
        )
        self.partitions.rules.max_lag_ms = LAG_MS
        self.partitions.rules.propose = changes.submit
        self.partitions.fetching = self.fetchers
        self.dispatch = Dispatch(
            cast(BrokerNode, Services(self, self.partitions)),
            BROKER_ENDPOINTS,
            Listeners.BROKER,
            spawn=_never,
            after=self.completions.run,
        )
        self._soon(self._read_metadata)  # as far as there were any when it died: that is on its own disk
        self._soon(self._register)
        self._later(LAG_MS / 2000, self._shrink)

    def kill(self, *, power: bool, survival: Survival | None = None) -> None:
        """SIGKILL, after which everything written is there; or a power failure, after which it need not be."""
        self.is_alive = False
        self.life += 1
        self.disk = self.disk.crash(survival) if power else self.disk.process_crash()
        self.partitions = None

    def log(self, topic: str, number: int) -> PartitionLog | None:
        if self.partitions is None:
            return None
        held = self.partitions.by_name.get(topic, {}).get(number)
        return None if held is None else held.log

    # -- calls that a killed process does not get any more --

    def _alive(self, callback: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: callback() if life == self.life else None

    def _soon(self, callback: Callable[[], None]) -> None:
        self.world.call_later(0, self._alive(callback))

    def _later(self, delay_s: float, callback: Callable[[], None], /) -> Call:
        return self.world.call_later(delay_s, self._alive(callback))

    def _shrink(self) -> None:
        assert self.partitions is not None
        self.partitions.shrink(self.world.now_ms)
        self._later(LAG_MS / 2000, self._shrink)

    # -- controller --

    def _register(self) -> None:
        if self.epoch < 0:
            self._later(0.3, self._register)
            self.world.deliver(self.number, 0, self._alive(self._registered))

    def _registered(self) -> None:
        controller = self.world.controller
        controller.now_ms = self.world.now_ms
        if self.epoch >= 0:
            return
        try:
            answer = controller.register(self.number)
        except ApiError:
            return  # its last life is still taken for alive

        def take() -> None:
            if self.epoch < 0:
                self.epoch = answer.broker_epoch
                self._beat()
                self._read_metadata()

        self.world.deliver(0, self.number, self._alive(take))

    def _beat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.number, broker_epoch=self.epoch, current_metadata_offset=self.position - 1
        )
        self._ask_controller(request, lambda _: None, lambda _: None)
        self._later(HEARTBEAT_MS / 1000, self._beat)
        self.tell_of_metadata()

    def _ask_controller(
        self, request: Any, answered: Callable[[Any], None], failed: Callable[[ApiError], None]
    ) -> None:
        settled: list[bool] = []

        def settle(how: Callable[[], None]) -> None:
            if not settled:
                settled.append(True)
                how()

        def decide() -> None:
            try:
                answer = self.world.controller.decide(request)
            except ApiError as error:
                refused = error
                self.world.deliver(0, self.number, self._alive(lambda: settle(lambda: failed(refused))))
            else:
                self.world.deliver(0, self.number, self._alive(lambda: settle(lambda: answered(answer))))

        self.world.deliver(self.number, 0, decide)
        self._later(1.0, lambda: settle(lambda: failed(NetworkFailed("the controller does not answer"))))

    def tell_of_metadata(self) -> None:
        """The log of metadata has grown; this broker reads it, when it comes to that."""
        self.world.deliver(0, self.number, self._alive(self._read_metadata))

    def _read_metadata(self) -> None:
        new = self.world.controller.log[self.position :]
        if new and self.partitions is not None:
            self.position += len(new)
            delta = Delta(self.image)
            for record in new:
                delta.apply(record)
            self.image = delta.finish(offset=self.position - 1, epoch=1, timestamp=self.world.now_ms)
            if self._is_registered:
                self.partitions.apply(delta.changes)
        known = self.image.brokers.get(self.number)
        if not self._is_registered and self.partitions is not None and known is not None and known.epoch == self.epoch:
            # Until then the metadata speak of its last life.
            self._is_registered = True
            self.partitions.apply(Changes.between(Image(), self.image))

    # -- requests --

    def serve(self, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """Handle a request, and call `answer` with the bytes of its answer when there are some."""
        self.dispatch.handle(_Exchange(self.disk, frame, answer), Client("somebody", "PLAINTEXT"))


class Services:
    """What handlers of produces, fetches and offsets ask of a broker."""

    def __init__(self, broker: SimulatedBroker, partitions: Partitions) -> None:
        sessions = count(1)
        self.node_id = broker.number
        self.partitions = partitions
        self.sessions = SessionCache(random_id=lambda: next(sessions))
        self.completions = broker.completions
        self.timer = broker.timer
        self.expirations = Expirations()
        self.now_ms = broker.world.clock_ms
        self.random = Random(broker.number)
        self.fetch_max_bytes = 57_671_680
        self.leader_throttle = ReplicationThrottle("leader", broker.number, now_ms=broker.world.clock_ms)
        self.reads_by_rack = False

    @property
    def image(self) -> Image:
        return self.partitions.image

    def __getattr__(self, name: str) -> Any:
        """What is not said here is as a broker has it that nothing else was said to."""
        known = {field.name: field for field in fields(BrokerNode)}
        if name not in known or known[name].default is MISSING:
            raise AttributeError(name)
        return known[name].default


class SimulatedFetcher:
    """Carries a fetcher's requests over the simulated network."""

    fetcher: Fetcher

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._is_closed = False
        self._is_waking = False

    @property
    def is_closed_by_peer(self) -> bool:
        return False

    def wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._broker._soon(self._poll)

    def close(self) -> None:
        self._is_closed = True

    def _poll(self) -> None:
        self._is_waking = False
        if self._is_closed:
            return
        now_ms = self._broker.world.now_ms
        for lane, request in self.fetcher.poll(now_ms):
            self._send(lane, request)
        next_ms = self.fetcher.next_ms(now_ms)
        if next_ms is not None:
            self._broker._later(max(next_ms - now_ms, 1) / 1000, self._poll)

    def _send(self, lane: Lane, request: Any) -> None:
        def settle(response: Any) -> None:
            if self._is_closed:
                return
            now_ms = self._broker.world.now_ms
            if isinstance(response, ApiError):
                self.fetcher.handle_failure(lane, response, now_ms)
            else:
                self.fetcher.handle_response(lane, response, now_ms)
            self._broker.completions.run()
            self._poll()

        call(self._broker, self._broker.world.brokers[self.fetcher.source], request, settle, FETCH_TIMEOUT_MS)


class _Exchange:
    """One request as the dispatch sees it."""

    def __init__(self, disk: SimulatedDisk, frame: bytes, answer: Callable[[bytes], None]) -> None:
        self.frame: memoryview | None = memoryview(bytearray(frame))
        self.note: object = None
        self._disk = disk
        self._answer = answer

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        self._answer(b"".join(map(self._bytes_of, chunks)))

    def skip(self, *, mute_ms: int = 0) -> None:
        raise AssertionError("all requests here want an answer")

    def refuse(self, why: str) -> None:
        raise AssertionError(why)

    def abort(self, why: str) -> None:
        raise AssertionError(why)

    def keep(self) -> None:
        """Bytes in memory stay anyway."""

    def _bytes_of(self, chunk: Chunk) -> bytes:
        if isinstance(chunk, FileRange):
            return self._disk.pread(chunk.file.number, chunk.size, chunk.position)
        assert isinstance(chunk, bytes | bytearray | memoryview)
        return bytes(chunk)


def call(
    asker: SimulatedBroker, asked: SimulatedBroker, request: Any, settle: Callable[[Any], None], timeout_ms: int
) -> None:
    """Send a request from one broker to another; `settle` gets the answer, or an error if there is none in time."""
    world = asker.world
    settled: list[bool] = []

    def once(result: Any) -> None:
        if not settled:
            settled.append(True)
            settle(result)

    life = asker.life
    send(world, asker.number, asked, request, lambda answer: once(answer) if asker.life == life else None)
    asker._later(timeout_ms / 1000, lambda: once(NetworkFailed("no answer")))


def send(world: World, origin: int, asked: SimulatedBroker, request: Any, answered: Callable[[Any], None]) -> None:
    """Send a request to a broker; its answer arrives, or does not."""
    api = BY_KEY[schema_of(type(request)).key]
    version = api.latest_stable
    head = struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if is_flexible(api.request, version) else b"")
    frame = head + encode(request, version)

    def answer(data: bytes) -> None:
        skipped = 9 if is_flexible(api.response, version) else 8
        world.deliver(asked.number, origin, lambda: answered(decode(api.response, version, memoryview(data)[skipped:])))

    def arrive() -> None:
        if asked.is_alive and asked.life == life:
            asked.serve(frame, answer)

    life = asked.life
    world.deliver(origin, asked.number, arrive)


def content(log: PartitionLog, end: int) -> bytes:
    """The bytes of all batches before an offset."""
    found: list[bytes] = []
    for segment in log.segments:
        for _, header, block, at in segment.batches(0):
            if header.next_offset > end:
                return b"".join(found)
            found.append(bytes(block[at : at + header.size_bytes]))
    return b"".join(found)


def _settings_of(image: Image, topic: str) -> LogSettings:
    return LogSettings.of(effective_topic_settings(image.topic_config(topic), {}))


def _never(work: Any) -> None:
    work.close()
    raise AssertionError("nothing here takes longer than a step")


class Writer:
    """An idempotent producer with acks=all and one request at a time, which tries until it hears that it succeeded."""

    def __init__(self, world: World, topic: str, partition: int, producer_id: int) -> None:
        self.world = world
        self.topic = topic
        self.partition = partition
        self._producer_id = producer_id
        self._attempts = count()
        self._attempt = 0
        self._next = 0
        self._leader_epoch = -1
        self.is_stopped = False
        self.acknowledged: dict[int, int] = {}
        """Number of the record → its offset."""
        self.surprises: list[str] = []
        self._try()

    @property
    def is_idle(self) -> bool:
        return self.is_stopped and len(self.acknowledged) == self._next

    def _try(self) -> None:
        """Send the next record to whom somebody takes for the leader, or once more the one that was not answered."""
        if self.is_stopped and self.is_idle:
            return
        world, attempt = self.world, next(self._attempts)
        self._attempt = attempt
        world.call_later(0.6, lambda: self._again(attempt))
        knowing = [broker for broker in world.brokers.values() if broker.is_alive and self.topic in broker.image.topics]
        if not knowing:
            return
        image = world.random.choice(knowing).image
        topic = image.topics[self.topic]
        partition = topic.partitions[self.partition]
        leader = partition.leader
        # As clients do, it never goes back to a leader of an earlier term.
        if leader >= 0 and partition.leader_epoch >= self._leader_epoch:
            self._leader_epoch = partition.leader_epoch
            send(world, 0, world.brokers[leader], self._request(topic.id), lambda answer: self._take(attempt, answer))

    def _request(self, topic_id: bytes) -> ProduceRequest:
        number = len(self.acknowledged)
        self._next = number + 1
        batch = build_batch(
            [Record(0, self.world.now_ms, None, b"%d" % number + b"." * self.world.random.randrange(300))],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        part = PartitionProduceData(index=self.partition, records=batch)
        return ProduceRequest(
            acks=-1, timeout_ms=400, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[part])]
        )

    def _take(self, attempt: int, answer: ProduceResponse) -> None:
        if attempt != self._attempt:
            return
        (part,) = answer.responses[0].partition_responses
        if part.error_code:
            if not by_code(part.error_code).retriable:
                self.surprises.append(name_of(part.error_code))
            self.world.call_later(self.world.random.randint(5, 50) / 1000, lambda: self._again(attempt))
            return
        self.acknowledged[len(self.acknowledged)] = part.base_offset
        self._attempt = -1
        if not self.is_stopped:
            self.world.call_later(self.world.random.randint(0, 10) / 1000, self._try)

    def _again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._try()

    def check(self) -> None:
        """Everything acknowledged is there, once, at its offset, in order."""
        assert not self.surprises, self.surprises
        log = next(iter(self.world.logs_of(self.topic, self.partition).values()))
        found: dict[int, int] = {}
        for segment in log.segments:
            for _, header, block, at in segment.batches(0):
                if header.producer_id == self._producer_id:
                    (record,) = read_records(block, at, header)
                    assert record.value is not None
                    number = int(record.value.split(b".")[0])
                    assert number not in found, f"{number} is there twice"
                    found[number] = header.base_offset
        assert list(found) == sorted(found)
        missing = {number: at for number, at in self.acknowledged.items() if found.get(number) != at}
        assert not missing, f"{self.topic}-{self.partition} lacks {missing}; {log}"
