"""A cluster as its controller sees it: decisions are encoded, decoded and applied."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, TypeVar

from immutables import Map

from ottla.metadata.controller import broker_heartbeat, registration
from ottla.metadata.controller.create_topics import CreationContext, create_topics
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.controller.view import ControllerOptions, ControllerView
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import decode_record, encode_record
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import Partition
from ottla.protocol.errors import ApiError
from ottla.protocol.features import SUPPORTED
from ottla.protocol.messages.records.metadata_records import ConfigRecord, FeatureLevelRecord
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.rpc.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.metadata_versions import ELR_VERSION, LATEST, METADATA_VERSION, METADATA_VERSIONS, version_to_write

T = TypeVar("T")
SESSION_MS = 9_000
CLUSTER_ID = "a-cluster"
BROKER_FEATURES = [
    Feature(name=name, min_supported_version=each.min, max_supported_version=each.max)
    for name, each in SUPPORTED.items()
]


def uuid(number: int) -> bytes:
    """Return a directory id that is not reserved."""
    return (1_000_000 + number).to_bytes(16, "big")


def directory(broker: int, number: int = 0) -> bytes:
    return uuid(1_000 + broker * 10 + number)


@dataclass(slots=True)
class Asked:
    """A request to the controller, with its result."""

    what: str
    request: Any
    now_ms: int
    next_offset: int
    registered_at: int = -1
    reply: Any = None
    error: int = 0
    image: Image = EMPTY


class Cluster:
    """The image of a cluster, and the environment of its controller."""

    def __init__(
        self,
        *brokers: int,
        seed: int = 0,
        metadata_version: int = LATEST,
        elr: bool = False,
        settings: dict[str, str] | None = None,
        options: Callable[..., ControllerOptions] = ControllerOptions,
    ) -> None:
        self.options = options(node_id=3000, cluster_id=CLUSTER_ID, settings=settings or {})
        self.image: Image = EMPTY
        self.next_offset = 0
        self.now_ms = 1_000_000
        self.random = Random(seed)
        self.heartbeats = Heartbeats(SESSION_MS)
        self._ids = count(1)
        self._incarnations = count(5_000)
        self.written: list[object] = []
        self.asked: list[Asked] = []
        records: list[object] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)]
        if elr:
            records.append(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
            records.append(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"))
        self.apply(Decision(tuple(records), None))
        self.started_from = self.image
        for broker in brokers:
            self.start(broker)

    @property
    def view(self) -> ControllerView:
        return ControllerView(self.image, self.options)

    @property
    def epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.image.brokers.values()}

    def apply(self, decision: Decision[T]) -> T:
        """Encode, decode and apply the records, so that anything that their version cannot express is lost."""
        level = self.image.features.metadata_version or LATEST
        assert level in METADATA_VERSIONS
        delta = Delta(self.image)
        self.written = []
        for record in decision.records:
            again, _ = decode_record(encode_record(record, version_to_write(record, level)))
            assert again == record, f"version loses something of {record}"
            self.written.append(again)
            delta.apply(again)
        self.next_offset += len(decision.records)
        self.image = delta.finish(offset=self.next_offset - 1, epoch=1, timestamp=self.now_ms)
        return decision.reply

    def ask(self, decide: Callable[..., Decision[Any]], request: object, *before: object, **context: object) -> Any:
        """Decide on a request, apply the decision, and keep both."""
        asked = Asked(decide.__name__, request, self.now_ms, self.next_offset)
        if isinstance(request, BrokerHeartbeatRequest):
            asked.registered_at = self.heartbeats.registration_offset(request.broker_id, request.broker_epoch)
        self.asked.append(asked)
        given = () if request is None else (request,)
        try:
            asked.reply = self.apply(decide(self.view, *before, *given, **context))
        except ApiError as error:
            asked.error = error.code
            raise
        finally:
            asked.image = self.image
        return asked.reply

    def new_id(self) -> bytes:
        return uuid(next(self._ids))

    # -- brokers

    def registration_of(self, broker: int, **changes: object) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=CLUSTER_ID,
            incarnation_id=uuid(next(self._incarnations)),
            listeners=[Listener(name="PLAINTEXT", host=f"host{broker}", port=9092)],
            features=list(BROKER_FEATURES),
            rack=None,
            log_dirs=[directory(broker)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def register(self, broker: int, **changes: object) -> BrokerRegistrationResponse:
        reply = self.ask(
            registration.register_broker,
            self.registration_of(broker, **changes),
            self.heartbeats,
            now_ms=self.now_ms,
            next_offset=self.next_offset,
            kraft_version=1,
        )
        assert isinstance(reply, BrokerRegistrationResponse)
        return reply

    def beat(self, broker: int, **changes: object) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.image.brokers[broker].epoch if broker in self.image.brokers else -1,
            current_metadata_offset=self.next_offset - 1,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        reply = self.ask(
            broker_heartbeat.process_broker_heartbeat,
            request,
            self.heartbeats,
            now_ms=self.now_ms,
            next_offset=self.next_offset,
        )
        assert isinstance(reply, BrokerHeartbeatResponse)
        return reply

    def fence_one(self) -> bool:
        """Fence the broker whose session expired first, and return whether there was one."""
        fenced = self.ask(broker_heartbeat.fence_stale_broker, None, self.heartbeats, now_ms=self.now_ms)
        assert isinstance(fenced, bool)
        return fenced

    def start(self, broker: int, **changes: object) -> None:
        """Register a broker and unfence it."""
        self.register(broker, **changes)
        assert not self.beat(broker).is_fenced

    def stop(self, broker: int) -> None:
        """Let the session of a broker expire, and fence it."""
        for other in self.image.alive_brokers:
            if other.id != broker:
                self.heartbeats.record_heartbeat(
                    other.id, other.epoch, self.next_offset - 1, self.now_ms + SESSION_MS + 1
                )
        self.now_ms += SESSION_MS + 1
        while self.fence_one():
            pass
        assert self.image.brokers[broker].fenced

    # -- topics

    def create(
        self,
        name: str,
        *assignments: list[int],
        partitions: int = -1,
        factor: int = -1,
        configs: dict[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatableTopicResult:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
                        for number, replicas in enumerate(assignments)
                    ],
                    configs=[CreatableTopicConfig(name=each, value=value) for each, value in (configs or {}).items()],
                )
            ],
            validate_only=validate_only,
        )
        context = CreationContext(random=self.random, new_id=self.new_id)
        result = self.ask(create_topics, request, context=context).topics[0]
        assert isinstance(result, CreatableTopicResult)
        return result

    def partition(self, name: str = "t", number: int = 0) -> Partition:
        partition = self.image.partition(name, number)
        assert partition is not None
        return partition

    def topic_id(self, name: str = "t") -> bytes:
        return self.image.topics[name].id


def code(error: type[ApiError]) -> int:
    return error.code


def plain(settings: Map[str, str]) -> dict[str, str]:
    return dict(settings)
