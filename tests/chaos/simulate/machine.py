"""A machine with a whole node on it: the real one, but for what it asks of the operating system.

Sockets, files, threads, clocks and chance are simulated; everything else is the code that `ottla serve` runs. A machine
keeps its disk for ever, and a node for as long as its process lives.
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
from tests.chaos.simulate.loop import Life, SimulatedLoop, current_life
from tests.chaos.simulate.network import Network
from tests.chaos.simulate.promises import Promises
from tests.support.simulated_disk import SimulatedDisk, Survival

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
_READ_BYTES = 1 << 20
_EPOCH_MS = 1_700_000_000_000


class ProcessLife(Life):
    """The life of a node, with the disk that it found."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine.number)
        self.machine = machine
        self.disk = machine.disk


class Machine:
    """A node's machine."""

    def __init__(
        self,
        number: int,
        loop: SimulatedLoop,
        network: Network,
        promises: Promises,
        settings: dict[str, str],
        random: Random,
    ) -> None:
        self.number, self._loop, self._network, self._promises, self.random = number, loop, network, promises, random
        self.skew_ms = random.randint(-60_000, 60_000)
        self.disk_ms = random.choice((1, 4, 20))
        self.settings: NodeSettings = load_settings(None, settings)
        self.disk = SimulatedDisk(seed=random.randrange(1 << 30), now_ms=self.now_ms)
        self.life: ProcessLife | None = None
        self.node: WatchedNode | None = None
        format_directories(self.settings, CLUSTER_ID, disk=self.disk, now_ms=self.now_ms)

    def now_ms(self) -> int:
        """This machine's wall clock."""
        return _EPOCH_MS + round(self._loop.now_s * 1000) + self.skew_ms

    @property
    def is_up(self) -> bool:
        return self.life is not None

    def start(self) -> None:
        """Start the process; it gets ready when it can."""
        assert self.life is None
        self._network.down.discard(self.number)
        self.life = ProcessLife(self)
        self.life.context.copy().run(self._run, self.life)

    def _run(self, life: ProcessLife) -> None:
        node = self.node = WatchedNode(self.settings, self._runtime(), self._promises)
        starting = self._loop.create_task(node.start())
        life.tasks = [starting]  # type: ignore[attr-defined] # nobody else holds it
        starting.add_done_callback(partial(self._started, life))

    def _runtime(self) -> Runtime:
        random = Random(self.random.randrange(1 << 62))
        threads = cast(Threads, _Threads(self, self._loop))
        return Runtime(self._loop, now_ms=self.now_ms, random=random, threads=threads)

    def _started(self, life: ProcessLife, starting: Any) -> None:
        if life.is_alive and not starting.cancelled() and starting.exception() is not None:
            raise starting.exception()

    def kill(self, *, power: bool = False, survival: Survival | None = None) -> None:
        """SIGKILL; or the machine goes off, and what was not synced may be lost."""
        life = self.life
        assert life is not None
        life.is_alive = False
        self.life = self.node = None
        for key in [key for key in self._network.listening if key[0] == self.number]:
            del self._network.listening[key]
        if power:
            self._network.down.add(self.number)
            self._network.machine_ended(life)
            self.disk = self.disk.crash(survival)
        else:
            self._network.process_ended(life)
            self.disk = self.disk.process_crash()


class WatchedNode(Node):
    """A node whose every decision is held against what was promised."""

    def __init__(self, settings: NodeSettings, runtime: Runtime, promises: Promises) -> None:
        super().__init__(settings, runtime)
        self._promises = promises
        self._digested, self._digest = 0, 0
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
            self._promises.leads_quorum(self.settings.node_id, change.epoch)
        super()._on_role(change)

    def _on_committed(self, high_watermark: int) -> None:
        assert self._quorum is not None
        log = self._quorum.log
        if log.start_offset > self._digested:  # from a snapshot: what it is made of is not known any more
            self._digested, self._digest = log.start_offset, -1
        while self._digested < high_watermark:
            data = log.read_bytes(self._digested, _READ_BYTES)
            for pos, header in read_batches(data, partial_tail=True):
                if self._digested <= header.base_offset < high_watermark:
                    assert header.next_offset <= high_watermark, "half a batch is committed"
                    self._digested = header.next_offset
                    if self._digest >= 0:
                        self._digest = crc32(data[pos : pos + header.size_bytes], self._digest)
                        self._promises.metadata_committed(self._digested, self._digest)
        super()._on_committed(high_watermark)

    def _fail(self, what: str, error: Exception) -> None:
        raise AssertionError(f"node {self.settings.node_id}: {what}") from error


def _check_isrs(update: Update) -> None:
    for topic in update.image.topics.values():
        for partition in topic.partitions:
            assert {*partition.isr} <= {*partition.replicas}, partition


# -- the operating system --


class _MachineDisk:
    """A machine's disk, as the node's metrics want it."""

    def __init__(self) -> None:
        life = current_life()
        assert isinstance(life, ProcessLife)
        self._disk = life.disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def start_minute(self) -> None:
        """Nobody asks."""

    def families(self) -> Iterator[Any]:
        return iter(())


class _Threads:
    """Work that takes its time, on the loop itself."""

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
    """A directory has no other owner here."""

    def __init__(self, path: str) -> None: ...

    def release(self) -> None: ...


@contextmanager
def simulated_system(loop: SimulatedLoop, network: Network, random: Random) -> Iterator[None]:
    """Inside, nodes that are made use this loop, this network and the disks of their machines."""

    def pread(file: int, size: int, position: int) -> bytes:
        life = current_life()
        assert isinstance(life, ProcessLife)
        return life.disk.pread(file, size, position)

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
