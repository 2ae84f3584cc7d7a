"""A broker in memory for tests of handlers: logs on a simulated disk, metadata from records, and simulated time.

    broker = Broker()
    broker.create_topic("t", partitions=2)
    broker.append("t", 0, batch)
    answer = broker.ask(ListOffsetsRequest(...), version=11)

Requests and responses are encoded and decoded. `ask` returns the answer; `send` returns an exchange that may still wait
for one. Work for threads runs immediately, unless the test passes a background of its own and runs it itself.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from random import Random
from typing import Any

from ottla.broker.handlers.registry import BROKER_ENDPOINTS, advertised_apis
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Client
from ottla.broker.requests.dispatch import Dispatch
from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.topics import effective_topic_settings
from ottla.coordinators.runtime.producer_ids import ProducerIds
from ottla.coordinators.runtime.share.groups import ShareGroups
from ottla.coordinators.runtime.share.sharing import Sharing
from ottla.coordinators.runtime.transactions.transactions import Transactions
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import DIRECTORY_UNASSIGNED
from ottla.node.coordinators import group_context, group_coordinators
from ottla.protocol.features import SUPPORTED
from ottla.protocol.messages.apis import BY_KEY, ApiKey, Listeners
from ottla.protocol.messages.records.metadata_records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.types import Chunk
from ottla.replication.directory_moves import DirectoryMoves
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Timer
from ottla.replication.runtime import Runtime
from ottla.replication.unavailable_leaders import UnavailableLeaders
from ottla.storage.directories.disk_space import DiskSpace
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.node_files import NodeMeta
from ottla.storage.disk import FileRange
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings
from ottla.storage.log_environment import InlineBackground
from tests.support.clock import Clock, runtime_on
from tests.support.logs_in_memory import ManualBackground
from tests.support.simulated_disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
ME = 1
BROKER_EPOCH = 7
CLUSTER_ID = "a-cluster"


class Exchange:
    """A request and its outcome."""

    def __init__(self, frame: bytes, request: Any, version: int) -> None:
        self.frame: memoryview | None = memoryview(bytearray(frame))
        self.note: object = None
        self.outcome = ""
        self.mute_ms = 0
        self._request = request
        self._version = version
        self._answer = b""

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        self._end("answered")
        self._answer = b"".join(map(_bytes_of, chunks))
        self.mute_ms = mute_ms

    def skip(self, *, mute_ms: int = 0) -> None:
        self._end("not answered")

    def refuse(self, why: str) -> None:
        self._end(f"closed: {why}")

    def abort(self, why: str) -> None:
        self._end(f"aborted: {why}")

    def keep(self) -> None:
        """Do nothing: bytes in memory stay valid."""

    @property
    def response(self) -> Any:
        """The answer, decoded from the bytes that the broker sent."""
        assert self.outcome == "answered", self.outcome or "still waiting"
        api = BY_KEY[schema_of(type(self._request)).key]
        is_tagged = is_flexible(api.response, self._version) and api.key is not ApiKey.API_VERSIONS
        return decode(api.response, self._version, self._answer[9 if is_tagged else 8 :])

    def _end(self, outcome: str) -> None:
        assert not self.outcome, f"{self.outcome}, and then {outcome}"
        self.outcome = outcome


def _bytes_of(chunk: Chunk) -> bytes | bytearray | memoryview:
    if isinstance(chunk, FileRange):
        return chunk.file._disk.pread(chunk.file.number, chunk.size, chunk.position)
    assert isinstance(chunk, bytes | bytearray | memoryview)
    return chunk


class Broker:
    """Broker 1 of a cluster whose metadata the test writes."""

    def __init__(
        self, *, directories: Iterable[str] = ("/one", "/two"), background: ManualBackground | None = None
    ) -> None:
        self.disk = SimulatedDisk(seed=1)
        self.clock = Clock(NOW_MS)
        self.loop = asyncio.new_event_loop()
        self.controller_requests: list[Any] = []
        """The requests that the controller received."""
        self.controller: Callable[[Any], Any] = self._decide
        self.max_bytes_per_s = 1 << 60
        self.disconnected_brokers: list[int] = []
        self._clients: dict[tuple[str, str], Client] = {}
        self.unreachable_hosts: set[str] = set()
        """The hosts that refuse connections."""
        self._next_producer_id = 0
        self._background = background or InlineBackground()
        self.logs = Logs([self._directory(number, path, background) for number, path in enumerate(directories)])
        self.logs.load(lambda _: LogSettings(), NOW_MS)
        timer = Timer(self.clock.call_later, self.clock.now_ms)
        runtime = Runtime(self.loop, now_ms=self.clock.now_ms, timer=timer, spawn=self._spawn)
        self.completions = runtime.completions
        self.partitions = Partitions(ME, self.logs, runtime, settings_of=_settings_of)
        self.moves = DirectoryMoves(
            self.partitions,
            runtime_on(self.clock, self._spawn),
            ask_controller=self._ask_controller,
            broker_epoch=lambda: BROKER_EPOCH,
            max_bytes_per_s=lambda: self.max_bytes_per_s,
        )
        self.groups = group_coordinators(
            self.partitions,
            runtime,
            setting=_setting,
            write_timeout_ms=5000,
        )
        producer_ids = ProducerIds(ME, lambda: BROKER_EPOCH, self._ask_controller)
        self.transactions = Transactions(
            self.partitions,
            self.groups,
            producer_ids,
            _setting,
            runtime,
            listener="PLAINTEXT",
            timeout_ms=30_000,
        )
        self.sharing = Sharing(
            self.partitions,
            _setting,
            runtime,
            listener="PLAINTEXT",
            timeout_ms=30_000,
            write_timeout_ms=5000,
        )
        context = group_context(self.partitions, _setting, self.clock.now_ms)
        self.node = BrokerNode(
            node_id=ME,
            cluster_id=CLUSTER_ID,
            partitions=self.partitions,
            sessions=SessionCache(slots=10, random_id=count(1).__next__),
            moves=self.moves,
            unavailable_leaders=UnavailableLeaders(
                "PLAINTEXT", self._probe_port, lambda: self.disconnected_brokers, runtime
            ),
            producer_ids=producer_ids,
            groups=self.groups,
            transactions=self.transactions,
            sharing=self.sharing,
            share_groups=ShareGroups(self.groups, self.sharing, self.partitions, context, self._spawn),
            completions=self.completions,
            timer=timer,
            now_ms=self.clock.now_ms,
            setting=_setting,
            new_member_id=lambda: "an-id",
            random=Random(1),
            supported_features=SUPPORTED,
            advertised=advertised_apis(BROKER_ENDPOINTS),
            space_of=lambda _: DiskSpace(1000, 400),
            ask_controller=self._ask_controller,
            decide=lambda _, request: self._ask_controller(request),
            create_internal_topic=lambda _: None,
            given={},
            in_thread=self._in_thread,
            check_broker_settings=lambda _, __: None,
            kraft_version=lambda: 1,
        )
        self._dispatch = Dispatch(
            self.node,
            BROKER_ENDPOINTS,
            Listeners.BROKER,
            spawn=self._spawn,
            after=self.completions.run,
        )
        self.register(ME)

    def close(self) -> None:
        self.loop.close()

    # -- metadata --

    @property
    def image(self) -> Image:
        return self.partitions.image

    def apply(self, *records: object) -> None:
        """Apply records of the metadata log."""
        old = self.image if self.image.offset >= 0 else EMPTY
        delta = Delta(old)
        for record in records:
            delta.apply(record)
        delta.finish(offset=old.offset + len(records), epoch=1, timestamp=self.clock.ms)
        self.partitions.apply(delta.changes)
        self.node.unavailable_leaders.apply(delta.changes)
        self.groups.apply(delta.changes)

    def register(self, broker: int, *, listener: str = "PLAINTEXT", fenced: bool = False, **fields: Any) -> None:
        """Register a broker in the cluster; broker 1 has this broker's directories."""
        directory_ids = [
            directory.meta.directory_id for directory in self.logs.directories if directory.meta.directory_id
        ]
        self.apply(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=BROKER_EPOCH,
                end_points=[BrokerEndpoint(name=listener, host=f"host{broker}", port=9000 + broker)],
                fenced=fenced,
                rack=None,
                log_dirs=directory_ids if broker == ME else [],
                **fields,
            )
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] = (ME,),
        leader: int = ME,
        isr: tuple[int, ...] | None = None,
    ) -> bytes:
        """Create a topic whose partitions all have the same replicas, and return its id."""
        topic_id = name.encode().ljust(16, b"\1")[:16]
        self.apply(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas if isr is None else isr),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY_UNASSIGNED] * len(replicas),
                )
                for number in range(partitions)
            ),
        )
        return topic_id

    def change(self, topic: str, number: int = 0, **fields: Any) -> None:
        """Apply a change that the controller made to a partition."""
        topic_id = self.image.topics[topic].id
        self.apply(PartitionChangeRecord(partition_id=number, topic_id=topic_id, **fields))

    # -- partitions --

    def partition(self, topic: str, number: int = 0) -> Partition:
        return self.partitions.get(topic, number)

    def log(self, topic: str, number: int = 0) -> PartitionLog:
        return self.partition(topic, number).log

    def append(self, topic: str, number: int, *batches: bytes | bytearray) -> None:
        """Append batches as a producer does."""
        for data in batches:
            self.partition(topic, number).append(bytearray(data), acks=1, now_ms=self.clock.ms)
        self.completions.run()

    # -- requests --

    def send(self, request: Any, version: int, **client: str) -> Exchange:
        """Send a request, and let coroutines run as far as they can."""
        exchange = self.begin(request, version, **client)
        self.settle()
        return exchange

    def begin(self, request: Any, version: int, *, listener: str = "PLAINTEXT", software: str = "test") -> Exchange:
        """Send a request, and let the dispatcher take it up, no more."""
        api = BY_KEY[schema_of(type(request)).key]
        head = struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if is_flexible(api.request, version) else b"")
        exchange = Exchange(head + encode(request, version), request, version)
        client = self._clients.get((listener, software))
        if client is None:
            client = self._clients[listener, software] = Client("a client", listener)
            client.software_name = software
        self.loop.call_soon(self._dispatch.handle, exchange, client)
        self.step()
        return exchange

    def ask(self, request: Any, version: int, **client: str) -> Any:
        """Return the answer to a request that does not have to wait."""
        return self.send(request, version, **client).response

    def settle(self) -> None:
        """Let coroutines run as far as they can."""
        for _ in range(20):
            self.step()

    def step(self) -> None:
        """Run every ready coroutine once."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        done: asyncio.Future[tuple[Any, Exception | None]] = self.loop.create_future()

        def call() -> tuple[Any, Exception | None]:
            try:
                return function(*arguments), None
            except Exception as error:  # noqa: BLE001 (it is raised below)
                return None, error

        self._background.run(call, done.set_result, lambda error: done.set_result((None, error)))
        result, failure = await done
        if failure is not None:
            raise failure
        return result

    def _spawn(self, work: Any) -> None:
        self.loop.create_task(work)

    async def _probe_port(self, host: str, port: int) -> bool:
        return host in self.unreachable_hosts

    async def _ask_controller(self, request: Any) -> Any:
        self.controller_requests.append(request)
        return self.controller(request)

    def _decide(self, request: Any) -> Any:
        if isinstance(request, AllocateProducerIdsRequest):
            first, self._next_producer_id = self._next_producer_id, self._next_producer_id + 1000
            return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=1000)
        assert isinstance(request, AssignReplicasToDirsRequest), request
        return AssignReplicasToDirsResponse()

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        self.loop.call_soon(self.partitions.take_offline)

    def _directory(self, number: int, path: str, background: ManualBackground | None) -> LogDirectory:
        self.disk.make_dir(path)
        self.disk.sync_dir("/")
        meta = NodeMeta(CLUSTER_ID, ME, directory_id=bytes([0xD0 + number]) * 16)
        return LogDirectory(
            path,
            meta,
            disk=self.disk,
            background=background or InlineBackground(),
            random=Random(number),
            on_failure=self._directory_failed,
        )


def _setting(name: str) -> Any:
    return broker_settings()[name].default_value


def _settings_of(image: Image, topic: str) -> LogSettings:
    node_settings: Mapping[str, str] = {}
    return LogSettings.of(effective_topic_settings(image.topic_config(topic), node_settings))
