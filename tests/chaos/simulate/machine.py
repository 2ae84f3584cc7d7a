"""A simulated machine with a complete node.

Sockets, files, threads, clocks and randomness are simulated; everything else is the code that `ottla serve` runs. The
disk of a machine outlives the processes that run on it.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from zlib import crc32

from ottla.broker.network import connection, listener
from ottla.client import consumer, producer, retries
from ottla.config.node_settings import NodeSettings
from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.image.loader import Update
from ottla.node import coordinators, directories, monitoring
from ottla.node.formatting import format_directories
from ottla.node.node import Node
from ottla.node.settings_loader import load_settings
from ottla.protocol.wire.batch import read_batches
from ottla.replication.runtime import Runtime
from ottla.storage.directories import random_ids
from ottla.storage.threads import Threads
from tests.chaos.simulate.invariants import Invariants
from tests.chaos.simulate.loop import SimulatedLoop, SimulatedProcess, current_process
from tests.chaos.simulate.network import Network
from tests.support.simulated_disk import SimulatedDisk, Survival

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
_READ_BYTES = 1 << 20
_EPOCH_MS = 1_700_000_000_000


class NodeProcess(SimulatedProcess):
    """The process of a node, with the disk as it was at the start."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine.number)
        self.machine = machine
        self.disk = machine.disk


class Machine:
    """A machine that runs a node."""

    def __init__(
        self,
        number: int,
        loop: SimulatedLoop,
        network: Network,
        invariants: Invariants,
        settings: dict[str, str],
        random: Random,
    ) -> None:
        self.number, self._loop, self._network, self._invariants, self.random = (
            number,
            loop,
            network,
            invariants,
            random,
        )
        self.skew_ms = random.randint(-60_000, 60_000)
        self.disk_ms = random.choice((1, 4, 20))
        self.settings: NodeSettings = load_settings(None, settings)
        self.disk = SimulatedDisk(seed=random.randrange(1 << 30), now_ms=self.now_ms)
        self.process: NodeProcess | None = None
        self.node: WatchedNode | None = None
        format_directories(self.settings, CLUSTER_ID, disk=self.disk, now_ms=self.now_ms)

    def now_ms(self) -> int:
        """Return the wall clock of this machine."""
        return _EPOCH_MS + round(self._loop.now_s * 1000) + self.skew_ms

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        """Start the process without waiting until it is ready."""
        assert self.process is None
        self._network.down.discard(self.number)
        self.process = NodeProcess(self)
        self.process.context.copy().run(self._run, self.process)

    def _run(self, process: NodeProcess) -> None:
        node = self.node = WatchedNode(self.settings, self._runtime(), self._invariants)
        starting = self._loop.create_task(node.start())
        process.tasks = [starting]  # type: ignore[attr-defined] # the only reference
        starting.add_done_callback(partial(self._check_start, process))

    def _runtime(self) -> Runtime:
        random = Random(self.random.randrange(1 << 62))
        threads = cast(Threads, _Threads(self, self._loop))
        return Runtime(self._loop, now_ms=self.now_ms, random=random, threads=threads)

    def _check_start(self, process: NodeProcess, starting: Any) -> None:
        if process.is_alive and not starting.cancelled() and starting.exception() is not None:
            raise starting.exception()

    def kill(self, *, power: bool = False, survival: Survival | None = None) -> None:
        """Kill the process; with `power`, turn the machine off, which may lose unsynced writes."""
        process = self.process
        assert process is not None
        process.is_alive = False
        self.process = self.node = None
        for key in [key for key in self._network.listening if key[0] == self.number]:
            del self._network.listening[key]
        if power:
            self._network.down.add(self.number)
            self._network.drop_connections(process)
            self.disk = self.disk.crash(survival)
        else:
            self._network.reset_connections(process)
            self.disk = self.disk.process_crash()


class WatchedNode(Node):
    """A node whose decisions are checked against the invariants."""

    def __init__(self, settings: NodeSettings, runtime: Runtime, invariants: Invariants) -> None:
        super().__init__(settings, runtime)
        self._invariants = invariants
        self._digest_end, self._digest = 0, 0
        self._metadata.subscribers.append(_check_isrs)

    @property
    def partitions(self) -> Any:
        return self._broker.partitions

    @property
    def image(self) -> Any:
        return self._metadata.image

    @property
    def leads_quorum(self) -> bool:
        return self._quorum is not None and self._quorum.consensus.is_leader

    @property
    def is_serving(self) -> bool:
        return self._reconfiguration.is_serving

    def _on_role(self, change: RoleChanged) -> None:
        if change.role == "leader":
            self._invariants.check_quorum_leader(self.settings.node_id, change.epoch)
        super()._on_role(change)

    def _on_committed(self, high_watermark: int) -> None:
        assert self._quorum is not None
        log = self._quorum.log
        if log.start_offset > self._digest_end:  # it loaded a snapshot, so the earlier batches are unknown
            self._digest_end, self._digest = log.start_offset, -1
        while self._digest_end < high_watermark:
            data = log.read_bytes(self._digest_end, _READ_BYTES)
            for pos, header in read_batches(data, partial_tail=True):
                if self._digest_end <= header.base_offset < high_watermark:
                    assert header.next_offset <= high_watermark, "the high watermark is within a batch"
                    self._digest_end = header.next_offset
                    if self._digest >= 0:
                        self._digest = crc32(data[pos : pos + header.size_bytes], self._digest)
                        self._invariants.check_metadata(self._digest_end, self._digest)
        super()._on_committed(high_watermark)

    def _fail(self, what: str, error: Exception) -> None:
        raise AssertionError(f"node {self.settings.node_id}: {what}") from error


def _check_isrs(update: Update) -> None:
    for topic in update.image.topics.values():
        for partition in topic.partitions:
            assert {*partition.isr} <= {*partition.replicas}, partition


# -- operating system --


class _MachineDisk:
    """The disk of a machine with the methods that metrics need."""

    def __init__(self) -> None:
        process = current_process()
        assert isinstance(process, NodeProcess)
        self._disk = process.disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def start_minute(self) -> None:
        """Do nothing: there are no metrics."""

    def families(self) -> Iterator[Any]:
        return iter(())


class _Threads:
    """Threads whose work runs on the event loop after a delay."""

    def __init__(self, machine: Machine, loop: SimulatedLoop) -> None:
        self._machine, self._call_later, self._is_closed = machine, loop.call_later, False

    def run(self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[OSError], None]) -> None:
        def finish() -> None:
            if self._is_closed:
                return
            try:
                result = work()
            except OSError as error:
                failed(error)
            else:
                done(result)

        self._call_later(self._machine.random.random() * self._machine.disk_ms / 1000, finish)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._call_later(delay_ms / 1000, action)

    def close(self) -> None:
        self._is_closed = True


class _Lock:
    """A directory lock that always succeeds."""

    def __init__(self, path: str) -> None: ...

    def release(self) -> None: ...


@contextmanager
def simulated_system(loop: SimulatedLoop, network: Network, random: Random) -> Iterator[None]:
    """Let nodes use this loop, this network and the disks of their machines while the body runs."""

    def pread(file: int, size: int, position: int) -> bytes:
        process = current_process()
        assert isinstance(process, NodeProcess)
        return process.disk.pread(file, size, position)

    def sendfile(out: int, file: int, position: int, size: int) -> int:
        data = pread(file, size, position)
        network.end_of(out).send(data)
        return len(data)

    clock = SimpleNamespace(monotonic=loop.time, time_ns=lambda: _EPOCH_MS * 1_000_000 + round(loop.now_s * 1e9))

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=random.getrandbits(128), version=4)

    replaced: list[tuple[Any, str, Any]] = [
        (monitoring, "TimedDisk", _MachineDisk),
        (directories, "DirectoryLock", _Lock),
        (listener, "_bound_socket", lambda host, port: network.listen(port)),
        (connection, "os", SimpleNamespace(pread=pread, sendfile=sendfile, strerror=os.strerror)),
        (retries, "time", clock),
        (producer, "time", clock),
        (consumer, "time", clock),
        (random_ids.random_id, "__defaults__", (random.randbytes,)),
        (coordinators, "uuid4", new_uuid),
    ]
    with ExitStack() as stack:
        for module, name, value in replaced:
            stack.enter_context(patch.object(module, name, value))
        yield
