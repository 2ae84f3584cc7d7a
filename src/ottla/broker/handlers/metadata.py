"""Metadata (key 3): brokers, topics and their leaders, from this broker's image; never from a log or another node.

A client creates a topic that does not exist by asking for it, where that is allowed: the broker asks the controller in
the client's name, and the client asks again until the topic is there. In KRaft no client talks to the controller, so
that any broker that is alive is named as one.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final

from ottla.broker.authorization.access_checks import ask_authorizer
from ottla.broker.authorization.authorized_operations import NOT_REQUESTED, cluster_operations, topic_operations
from ottla.broker.authorization.data_guards import guard_metadata
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS, check_topic_name
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Broker,
    Partition,
    Topic,
)
from ottla.protocol.errors import (
    NONE,
    ApiError,
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    ListenerNotFound,
    ReplicaNotAvailable,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.wire.types import ZERO_UUID

_KAFKAS_OWN: Final = "apache-kafka-java"
"""How Kafka's own clients call themselves. They move partitions together with their leaders' brokers, and without
bootstrap servers to go back to they would count on a broker that is gone."""


def metadata_failed(request: MetadataRequest, version: int, error: ApiError) -> MetadataResponse:
    """The error for each topic that was asked for."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
    )


@endpoint(ApiKey.METADATA, failed=metadata_failed, guard=guard_metadata)
def metadata(
    call: Call[BrokerNode], request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answer from the image; where a leader hung up a moment ago, a little later."""
    if call.node.unavailable_leaders.has_missing() and _names_missing(call, request):
        return _answer_later(call, request)
    return _answer(call, request)


async def _answer_later(call: Call[BrokerNode], request: MetadataRequest) -> MetadataResponse:
    await call.node.unavailable_leaders.wait_while(lambda: _names_missing(call, request))
    return await ask_authorizer(call, partial(_answer, call, request))


def _names_missing(call: Call[BrokerNode], request: MetadataRequest) -> bool:
    """Whether the answer would name a leader of which it is open what became of it."""
    image, is_missing = call.node.image, call.node.unavailable_leaders.is_missing
    topics: Iterable[Topic | None]
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = image.topics.values()
    else:
        topics = (
            image.topic(asked.name) if asked.name is not None else image.topic_by_id(asked.topic_id)
            for asked in request.topics
        )
    return any(is_missing(partition.leader) for topic in topics if topic is not None for partition in topic.partitions)


def _answer(call: Call[BrokerNode], request: MetadataRequest) -> MetadataResponse:
    image, version, listener = call.node.image, call.version, call.client.listener
    # The authorizer is asked before topics are created.
    operations = cluster_operations(call) if request.include_cluster_authorized_operations else NOT_REQUESTED
    may_do = topic_operations(call, _names(image, request)) if request.include_topic_authorized_operations else {}
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_topic(call, image.topics[name]) for name in sorted(image.topics)]
    else:
        topics = _asked_topics(call, request, request.topics)
    for topic in topics if may_do else ():
        if topic.name is not None:
            topic.topic_authorized_operations = may_do[topic.name]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in _named(call, image)
            if (endpoint := broker.endpoints.get(listener)) is not None
        ],
        cluster_id=call.node.cluster_id,
        controller_id=_some_broker(call, image),
        topics=topics,
        cluster_authorized_operations=operations,
    )


def _names(image: Image, request: MetadataRequest) -> Iterable[str]:
    """The names of the topics that a request asks for, as far as they have names."""
    if request.topics is None:
        return image.topics
    asked = [topic.name if topic.topic_id == ZERO_UUID else _name_of(image, topic.topic_id) for topic in request.topics]
    return [name for name in asked if name is not None]


def _name_of(image: Image, topic_id: bytes) -> str | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _named(call: Call[BrokerNode], image: Image) -> tuple[Broker, ...]:
    is_kafkas = call.client.software_name == _KAFKAS_OWN
    return image.alive_brokers if is_kafkas else call.node.unavailable_leaders.listed_brokers(image)


def _asked_topics(
    call: Call[BrokerNode], request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    """Each topic once. Where one is asked for by its id, all must be: names are then passed over."""
    if call.version < 12 and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in asked):
        raise InvalidRequest("topics by id can be asked for from v12 on")
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    if ids:
        return [_topic_by_id(call, topic_id) for topic_id in ids]
    may_create = request.allow_auto_topic_creation or call.version < 4
    answers = []
    missing = []
    for name in dict.fromkeys(topic.name for topic in asked):
        if name is None:
            raise UnknownServerError("a topic has neither a name nor an id")  # which Kafka answers, too
        topic = call.node.image.topic(name)
        if topic is not None:
            answers.append(_topic(call, topic))
            continue
        answer = _missing(name)
        if answer.error_code == UnknownTopicOrPartition.code:
            missing.append(name)
        answers.append(answer)
    if missing and may_create and call.node.create_missing_topics is not None:
        call.node.create_missing_topics(call, missing)
    return answers


def _topic_by_id(call: Call[BrokerNode], topic_id: bytes) -> MetadataResponseTopic:
    topic = call.node.image.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=UnknownTopicId.code, name=None, topic_id=topic_id)
    return _topic(call, topic)


def _missing(name: str) -> MetadataResponseTopic:
    """The answer about a topic that does not exist."""
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        code = error.code
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(call: Call[BrokerNode], topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(call, number, partition) for number, partition in enumerate(topic.partitions)],
    )


def _partition(call: Call[BrokerNode], number: int, partition: Partition) -> MetadataResponsePartition:
    image, version, listener = call.node.image, call.version, call.client.listener
    error, leader = NONE, partition.leader
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        # Clients of that time know of no broker that is not in the answer.
        replicas = [broker for broker in replicas if _is_reachable(image, broker, listener)]
        isr = [broker for broker in isr if _is_reachable(image, broker, listener)]
    if image.endpoint(leader, listener) is None:
        is_known = image.broker(leader) is not None
        error, leader = (ListenerNotFound if is_known and version >= 6 else LeaderNotAvailable).code, -1
    elif call.node.unavailable_leaders.is_gone(leader):
        error, leader = LeaderNotAvailable.code, -1
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        error = ReplicaNotAvailable.code
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener),
    )


def _is_reachable(image: Image, broker: int, listener: str) -> bool:
    return image.is_alive(broker) and image.endpoint(broker, listener) is not None


def offline_replicas(image: Image, partition: Partition, listener: str) -> list[int]:
    """The replicas that cannot be used: their broker, its listener or the replica's directory is not there."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if not _is_reachable(image, replica, listener) or not _has_directory(image, replica, directory)
    ]


def _has_directory(image: Image, broker_id: int, directory: bytes) -> bool:
    """Whether a broker still has a directory. One that was not chosen yet, or never told, is taken to be there."""
    broker = image.broker(broker_id)
    if broker is None or directory == DIRECTORY_LOST:
        return False
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or not broker.log_dirs:
        return True
    return directory in broker.log_dirs


def _some_broker(call: Call[BrokerNode], image: Image) -> int:
    alive = image.alive_brokers
    return call.node.random.choice(alive).id if alive else -1
