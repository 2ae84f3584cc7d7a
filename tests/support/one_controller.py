"""A quorum of one controller on simulated time and disk: consensus, log, metadata and decisions, without sockets.

    controller = OneController()
    controller.run(2000)  # elected, and active
    answer = controller.decide(CreateTopicsRequest(...))

`crash` returns the disk as a power loss might leave it, for the next controller to start on.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from ottla.metadata.consensus.config import ConsensusConfig
from ottla.metadata.consensus.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet
from ottla.metadata.controller.view import ControllerOptions
from ottla.metadata.image.image import Image
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.metadata_log import MetadataLog
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.protocol.features import SUPPORTED
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSION
from ottla.storage.log_environment import LogEnvironment
from tests.support.logs_in_memory import ManualBackground
from tests.support.simulated_disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
ME = 1
CLUSTER_ID = "a-cluster"
DIRECTORY = "/meta"


class Timers:
    """Simulated time with scheduled calls: the part of an event loop that a controller needs."""

    def __init__(self) -> None:
        self.ms = NOW_MS
        self._order = count()
        self._calls: list[tuple[int, int, Handle]] = []

    def now_ms(self) -> int:
        return self.ms

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=NoLoop())  # type: ignore[arg-type]

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> "Handle":
        handle = Handle(lambda: callback(*args))
        heapq.heappush(self._calls, (self.ms + round(delay * 1000), next(self._order), handle))
        return handle

    def run(self, ms: int, between: Callable[[], None]) -> None:
        end = self.ms + ms
        between()
        while self._calls and self._calls[0][0] <= end:
            due_ms, _, handle = heapq.heappop(self._calls)
            self.ms = max(self.ms, due_ms)
            if not handle.is_cancelled:
                handle.call()
                between()
        self.ms = end


class NoLoop:
    """The part of an event loop that a future needs if no coroutine awaits it."""

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: object) -> None:
        """Ignore an exception that no test retrieved."""


class Handle:
    """A scheduled call, which can be cancelled."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class OneController:
    """A controller that is its whole quorum."""

    def __init__(
        self, disk: SimulatedDisk | None = None, *, seed: int = 0, settings: dict[str, str] | None = None
    ) -> None:
        if disk is None:
            disk = SimulatedDisk(seed=seed)
            disk.make_dir(DIRECTORY)
            disk.sync_dir("/")
        self.disk = disk
        self.timers = Timers()
        self.background = ManualBackground()
        environment = LogEnvironment(disk=disk, background=self.background, random=Random(seed))
        self.log = MetadataLog(environment, DIRECTORY, now_ms=NOW_MS, segment_bytes=1 << 20, segment_ms=1 << 40)
        self.metadata = MetadataPublisher(
            background=self.background, now_ms=self.timers.now_ms, snapshot_bytes=1 << 40, snapshot_interval_ms=0
        )
        address = Endpoint("CONTROLLER", "localhost", 9093)
        self.quorum = QuorumDriver(
            ConsensusConfig(
                local=ReplicaKey(ME, b"m" * 16),
                cluster_id=CLUSTER_ID,
                listener="CONTROLLER",
                endpoints=(address,),
                bootstrap=(Node(ME, "localhost", 9093),),
                can_become_voter=True,
            ),
            self.log,
            VoterSet.from_voters([Voter(ReplicaKey(ME), (address,))]),
            disk=disk,
            timers=self.timers,
            peers=NoPeers(),
            random=Random(seed),
            now_ms=self.timers.now_ms,
            on_role=lambda change: self.active.on_role(change),
            on_committed=self._on_committed,
        )
        self.active = ActiveController(
            self.quorum,
            self.metadata,
            ControllerOptions(node_id=ME, cluster_id=CLUSTER_ID, settings=settings or {}),
            [FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST)],
            session_timeout_ms=9000,
            loop=self.timers,
            random=Random(f"{seed} {self.log.end_offset}"),  # ids must not repeat after a restart
            now_ms=self.timers.now_ms,
        )
        self.metadata.follow(self.quorum)
        self.quorum.start()

    @property
    def image(self) -> Image:
        """The committed and applied metadata."""
        return self.metadata.image

    def run(self, ms: int) -> None:
        """Let time pass; work on the disk takes no time."""
        self.timers.run(ms, self.background.finish)

    def submit(self, request: Any) -> "asyncio.Future[Any]":
        """Submit a request; nothing reaches the disk before `run`."""
        return self.active.submit(request)

    def decide(self, request: Any) -> Any:
        """Submit a request, let time pass, and return the answer."""
        future = self.submit(request)
        self.run(100)
        return future.result()

    def join(self, broker: int) -> int:
        """Register and unfence a broker, and return its epoch."""
        answer = self.decide(
            BrokerRegistrationRequest(
                broker_id=broker,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes([broker]) * 16,
                listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092)],
                features=[
                    Feature(name=name, min_supported_version=least, max_supported_version=most)
                    for name, (least, most) in SUPPORTED.items()
                ],
                log_dirs=[b"directory of %03d" % broker],
            )
        )
        assert not answer.error_code, answer
        self.beat(broker, answer.broker_epoch)
        epoch: int = answer.broker_epoch
        return epoch

    def beat(self, broker: int, epoch: int) -> Any:
        """Send the heartbeat of a broker that has read all metadata."""
        offset = self.metadata.applied_offset - 1
        return self.decide(BrokerHeartbeatRequest(broker_id=broker, broker_epoch=epoch, current_metadata_offset=offset))

    def crash(self) -> SimulatedDisk:
        """Cut the power, and return the disk as it is found then."""
        return self.disk.crash()

    def _on_committed(self, high_watermark: int) -> None:
        self.metadata.on_committed(high_watermark)
        self.active.on_committed(high_watermark)


class NoPeers:
    """The network of a quorum without other voters."""

    def send(self, *_: object) -> None:
        raise AssertionError("a quorum of one sends nothing")
