"""A controller with nothing but partitions in its image, and the brokers that it believes in.

The controller is a process of either system, alone in its quorum. The brokers are connections of this process: they
register, send heartbeats, and hold nothing. So the image grows to any size, and what is measured is the controller.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from bench.harness.node_requests import NoResponse, fetch_api_keys, send_request
from bench.harness.systems import CLUSTER_ID, Node, ServerFailed, System
from ottla.protocol.features import SUPPORTED
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest

BROKERS = 10
REPLICAS = 3
PARTITIONS_A_TOPIC = 1_000
PATIENCE_S = 120.0
_REGISTRATION_VERSION, _HEARTBEAT_VERSION, _CREATION_VERSION = 4, 1, 7
_EVERYTHING_READ = 1 << 60
_NOT_CONTROLLER = 41
_PROBE_S = 0.002


class LoneController:
    """One controller process and its brokers."""

    def __init__(self, system: System, folder: Path, *, snapshot_ms: int) -> None:
        self.node = Node(system, 1, folder)
        settings = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{self.node.controller_port}",
            "broker.session.timeout.ms": "600000",  # brokers that are silent while others are measured are not dead
            "metadata.log.max.snapshot.interval.ms": str(snapshot_ms),
        }
        self.node.configure(settings, f"1@127.0.0.1:{self.node.controller_port}")
        self._brokers: dict[int, tuple[socket.socket, int]] = {}

    def start(self) -> float:
        """Start the process; the seconds until its controller is active, which is when it hears a heartbeat."""
        began = time.perf_counter()
        self.node.launch()
        while time.perf_counter() - began < PATIENCE_S:
            try:
                with self.connect() as connection:
                    request = BrokerHeartbeatRequest(broker_id=1 << 20, broker_epoch=0)
                    # Nobody is registered under this id; another controller, or none, would say NOT_CONTROLLER.
                    if send_request(connection, request, _HEARTBEAT_VERSION).error_code != _NOT_CONTROLLER:
                        return time.perf_counter() - began
            except (OSError, NoResponse):
                pass  # it does not listen yet
            time.sleep(0.005)
        raise ServerFailed(f"the controller is not active: {self.node.log_tail()}")

    def stop(self) -> None:
        for connection, _ in self._brokers.values():
            connection.close()
        self._brokers.clear()
        self.node.stop()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.node.controller_port), PATIENCE_S)

    def register_brokers(self) -> None:
        """Let the brokers register and come into service."""
        for broker_id in range(100, 100 + BROKERS):
            connection = self.connect()
            answer = send_request(
                connection,
                BrokerRegistrationRequest(
                    broker_id=broker_id,
                    cluster_id=CLUSTER_ID,
                    incarnation_id=uuid4().bytes,
                    listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
                    features=[
                        Feature(name=name, min_supported_version=each.min, max_supported_version=each.max)
                        for name, each in SUPPORTED.items()
                    ],
                    rack=None,
                    log_dirs=[uuid4().bytes],
                ),
                _REGISTRATION_VERSION,
            )
            if answer.error_code:
                raise ServerFailed(f"broker {broker_id} was not registered: error {answer.error_code}")
            self._brokers[broker_id] = connection, answer.broker_epoch
            if self.heartbeat(broker_id):
                raise ServerFailed(f"broker {broker_id} stays fenced")

    def heartbeat(self, broker_id: int, *, want_fence: bool = False) -> bool:
        """A heartbeat of a broker; whether it is fenced now, and all that this means for its partitions committed."""
        connection, epoch = self._brokers[broker_id]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=_EVERYTHING_READ, want_fence=want_fence
        )
        answer = send_request(connection, request, _HEARTBEAT_VERSION)
        if answer.error_code:
            raise ServerFailed(f"a heartbeat of broker {broker_id} got error {answer.error_code}")
        return bool(answer.is_fenced)

    def create(self, partitions: int) -> None:
        """Create topics with this many partitions in total, one topic a request."""
        with self.connect() as connection:
            for number, start in enumerate(range(0, partitions, PARTITIONS_A_TOPIC)):
                count = min(PARTITIONS_A_TOPIC, partitions - start)
                topic = CreatableTopic(name=f"wide-{number}", num_partitions=count, replication_factor=REPLICAS)
                answer = send_request(
                    connection, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), _CREATION_VERSION
                )
                if answer.topics[0].error_code:
                    raise ServerFailed(f"{topic.name} was not made: {answer.topics[0].error_message}")

    def await_snapshot(self) -> float:
        """Wait for a snapshot to be begun, and to be done; the milliseconds in between."""
        folder = self.node.folder / "logs" / "__cluster_metadata-0"
        _await(lambda: not any(folder.glob("*.part")))
        _await(lambda: any(folder.glob("*.part")))
        began = time.perf_counter()
        _await(lambda: not any(folder.glob("*.part")))
        return (time.perf_counter() - began) * 1000

    @contextmanager
    def probed(self) -> Iterator[list[float]]:
        """Milliseconds that a small request took, asked over and over while the work inside runs."""
        times: list[float] = []
        done = Event()

        def probe() -> None:
            with self.connect() as connection:
                while not done.wait(_PROBE_S):
                    began = time.perf_counter()
                    fetch_api_keys(connection)
                    times.append((time.perf_counter() - began) * 1000)

        prober = Thread(target=probe)
        prober.start()
        try:
            yield times
        finally:
            done.set()
            prober.join()


def _await(holds: Callable[[], bool]) -> None:
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > PATIENCE_S:
            raise ServerFailed(f"no snapshot within {PATIENCE_S:g} s")
        time.sleep(0.002)
