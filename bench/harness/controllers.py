"""A controller process of either system, alone in its quorum, and simulated brokers.

The brokers are connections of this process: they register and send heartbeats, but have no logs. So the image can grow
to any size, and only the controller is measured.
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
TIMEOUT_S = 120.0
_REGISTRATION_VERSION, _HEARTBEAT_VERSION, _CREATION_VERSION = 4, 1, 7
_EVERYTHING_READ = 1 << 60
_NOT_CONTROLLER = 41
_PROBE_S = 0.002


class LoneController:
    """A controller process and its simulated brokers."""

    def __init__(self, system: System, folder: Path, *, snapshot_ms: int) -> None:
        self.node = Node(system, 1, folder)
        settings = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{self.node.controller_port}",
            "broker.session.timeout.ms": "600000",  # so that silent brokers are not fenced during a measurement
            "metadata.log.max.snapshot.interval.ms": str(snapshot_ms),
        }
        self.node.configure(settings, f"1@127.0.0.1:{self.node.controller_port}")
        self._brokers: dict[int, tuple[socket.socket, int]] = {}

    def start(self) -> float:
        """Start the process. Return the seconds until its controller is active, that is, processes a heartbeat."""
        began = time.perf_counter()
        self.node.launch()
        while time.perf_counter() - began < TIMEOUT_S:
            try:
                with self.connect() as connection:
                    request = BrokerHeartbeatRequest(broker_id=1 << 20, broker_epoch=0)
                    # No broker has this id; only an active controller answers with another error than NOT_CONTROLLER.
                    if send_request(connection, request, _HEARTBEAT_VERSION).error_code != _NOT_CONTROLLER:
                        return time.perf_counter() - began
            except (OSError, NoResponse):
                pass  # the process does not listen yet
            time.sleep(0.005)
        raise ServerFailed(f"the controller is not active after {TIMEOUT_S:g} s: {self.node.log_tail()}")

    def stop(self) -> None:
        for connection, _ in self._brokers.values():
            connection.close()
        self._brokers.clear()
        self.node.stop()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.node.controller_port), TIMEOUT_S)

    def register_brokers(self) -> None:
        """Register the brokers and unfence them."""
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
                        Feature(name=name, min_supported_version=versions.min, max_supported_version=versions.max)
                        for name, versions in SUPPORTED.items()
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
                raise ServerFailed(f"broker {broker_id} is still fenced after its first heartbeat")

    def heartbeat(self, broker_id: int, *, want_fence: bool = False) -> bool:
        """Send a heartbeat. Return whether the broker is fenced; the changes of its partitions are then committed."""
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
                    raise ServerFailed(f"topic {topic.name} was not created: {answer.topics[0].error_message}")

    def await_snapshot(self) -> float:
        """Wait for the next snapshot to start and to end. Return its duration in milliseconds."""
        folder = self.node.folder / "logs" / "__cluster_metadata-0"
        _await(lambda: not any(folder.glob("*.part")))
        _await(lambda: any(folder.glob("*.part")))
        began = time.perf_counter()
        _await(lambda: not any(folder.glob("*.part")))
        return (time.perf_counter() - began) * 1000

    @contextmanager
    def probing(self) -> Iterator[list[float]]:
        """Measure the milliseconds of a small request, which is repeated while the body runs."""
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


def _await(is_true: Callable[[], bool]) -> None:
    began = time.perf_counter()
    while not is_true():
        if time.perf_counter() - began > TIMEOUT_S:
            raise ServerFailed(f"no snapshot within {TIMEOUT_S:g} s")
        time.sleep(0.002)
