"""Metadata (key 3): brokers, topics and their leaders, from this broker's image.

If automatic creation is on, a request for a missing topic creates it: the broker asks the controller in the client's
name, and the client retries until the topic exists. In KRaft, clients do not connect to the controller; the answer
names any live broker as the controller.
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

_JAVA_CLIENT: Final = "apache-kafka-java"
"""The software name of Kafka's Java clients. Unlike librdkafka, they do not need brokers that were just fenced; a
client that cannot return to its bootstrap servers could even be left with such a broker alone."""


def metadata_failed(request: MetadataRequest, version: int, error: ApiError) -> MetadataResponse:
    """Return the error for each requested topic."""
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
    """Answer from the image; if the state of a leader is unclear, wait until it is known."""
    if call.node.unavailable_leaders.has_missing() and _names_missing(call, request):
        return _answer_later(call, request)
    return _answer(call, request)


async def _answer_later(call: Call[BrokerNode], request: MetadataRequest) -> MetadataResponse:
    await call.node.unavailable_leaders.wait_while(lambda: _names_missing(call, request))
    return await ask_authorizer(call, partial(_answer, call, request))


def _names_missing(call: Call[BrokerNode], request: MetadataRequest) -> bool:
    """Return whether the answer would name a leader that may have failed a moment ago."""
    image, is_missing = call.node.image, call.node.unavailable_leaders.is_missing
    topics: Iterable[Topic | None]
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = image.topics.values()
    else:
        topics = (
            image.topic(requested.name) if requested.name is not None else image.topic_by_id(requested.topic_id)
            for requested in request.topics
        )
    return any(is_missing(partition.leader) for topic in topics if topic is not None for partition in topic.partitions)


def _answer(call: Call[BrokerNode], request: MetadataRequest) -> MetadataResponse:
    image, version, listener = call.node.image, call.version, call.client.listener
    # The authorizer is asked before topics are created.
    operations = cluster_operations(call) if request.include_cluster_authorized_operations else NOT_REQUESTED
    topic_rights = topic_operations(call, _names(image, request)) if request.include_topic_authorized_operations else {}
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_topic(call, image.topics[name]) for name in sorted(image.topics)]
    else:
        topics = _requested_topics(call, request, request.topics)
    for topic in topics if topic_rights else ():
        if topic.name is not None:
            topic.topic_authorized_operations = topic_rights[topic.name]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in _listed_brokers(call, image)
            if (endpoint := broker.endpoints.get(listener)) is not None
        ],
        cluster_id=call.node.cluster_id,
        controller_id=_some_broker(call, image),
        topics=topics,
        cluster_authorized_operations=operations,
    )


def _names(image: Image, request: MetadataRequest) -> Iterable[str]:
    """Return the names of the requested topics that exist or have a name."""
    if request.topics is None:
        return image.topics
    names = [topic.name if topic.topic_id == ZERO_UUID else _name_of(image, topic.topic_id) for topic in request.topics]
    return [name for name in names if name is not None]


def _name_of(image: Image, topic_id: bytes) -> str | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _listed_brokers(call: Call[BrokerNode], image: Image) -> tuple[Broker, ...]:
    is_java_client = call.client.software_name == _JAVA_CLIENT
    return image.alive_brokers if is_java_client else call.node.unavailable_leaders.listed_brokers(image)


def _requested_topics(
    call: Call[BrokerNode], request: MetadataRequest, requested: list[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    """Return each topic once. If one topic has an id, topics with names are ignored."""
    if call.version < 12 and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in requested):
        raise InvalidRequest("topic ids need Metadata v12 or later")
    ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
    if ids:
        return [_topic_by_id(call, topic_id) for topic_id in ids]
    may_create = request.allow_auto_topic_creation or call.version < 4
    answers = []
    missing = []
    for name in dict.fromkeys(topic.name for topic in requested):
        if name is None:
            raise UnknownServerError("a topic has neither a name nor an id")  # Kafka's answer, too
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
    """Return the answer for a topic that does not exist."""
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
        # Clients of this version know only the brokers in the answer.
        replicas = [broker for broker in replicas if _is_reachable(image, broker, listener)]
        isr = [broker for broker in isr if _is_reachable(image, broker, listener)]
    if image.endpoint(leader, listener) is None:
        is_registered = image.broker(leader) is not None
        error, leader = (ListenerNotFound if is_registered and version >= 6 else LeaderNotAvailable).code, -1
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
    """Return the replicas whose broker, its listener or the replica's directory is unavailable."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if not _is_reachable(image, replica, listener) or not _has_directory(image, replica, directory)
    ]


def _has_directory(image: Image, broker_id: int, directory: bytes) -> bool:
    """Return whether a broker still has a directory; True if it was not assigned yet, or never reported."""
    broker = image.broker(broker_id)
    if broker is None or directory == DIRECTORY_LOST:
        return False
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or not broker.log_dirs:
        return True
    return directory in broker.log_dirs


def _some_broker(call: Call[BrokerNode], image: Image) -> int:
    alive = image.alive_brokers
    return call.node.random.choice(alive).id if alive else -1
