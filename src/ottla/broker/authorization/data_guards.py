"""Guards of what producers and consumers ask: records, offsets, topics. Fetch asks for itself, as its sessions last."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ottla.broker.authorization.access_checks import (
    TOPIC_REFUSED,
    allowed,
    answered_with,
    error_of,
    may,
    require_transactional_id,
    split,
)
from ottla.broker.authorization.actions import Kind, Operation
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, CloseConnection
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ClusterAuthorizationFailed
from ottla.protocol.messages.rpc import (
    delete_records,
    describe_producers,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.wire.batch import ATTRIBUTES_LOW_BYTE, HEADER_BYTES, TRANSACTIONAL_BIT
from ottla.protocol.wire.types import ZERO_UUID


def guard_produce(call: Call[BrokerNode], request: produce.ProduceRequest) -> None:
    """WRITE on each topic, and on the transactional id of records that belong to a transaction."""
    if request.transactional_id is not None and has_transactional_records(request):
        require_transactional_id(call, Operation.WRITE, request.transactional_id)
    request.topic_data, bad = split_topics(call, Operation.WRITE, request.topic_data)
    if not bad:
        return
    if request.acks == 0:
        call.amend = lambda _: CloseConnection("it produced without acks where it may not write")
        return
    refused: dict[tuple[str, bytes], produce.TopicProduceResponse] = {}
    for topic in bad:
        key = (topic.name, topic.topic_id)
        answer = refused.setdefault(key, produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id))
        answer.partition_responses += [
            produce.PartitionProduceResponse(index=part.index, error_code=TOPIC_REFUSED, base_offset=-1)
            for part in topic.partition_data
        ]
    answered_with(call, "responses", refused.values())


def has_transactional_records(request: produce.ProduceRequest) -> bool:
    """Whether any of the batches belongs to a transaction."""
    for topic in request.topic_data:
        for part in topic.partition_data:
            data = part.records
            if (
                isinstance(data, memoryview)
                and len(data) >= HEADER_BYTES
                and data[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def name_of(call: Call[Any], name: str, topic_id: bytes) -> str | None:
    """The name of a topic that is given by name or by id; None for an id that nobody has."""
    if topic_id == ZERO_UUID:
        return name
    topic = call.node.image.topic_by_id(topic_id)
    return None if topic is None else str(topic.name)


class _Topic(Protocol):
    name: str
    topic_id: bytes


TopicT = TypeVar("TopicT", bound=_Topic)


def split_topics(call: Call[Any], operation: Operation, topics: list[TopicT]) -> tuple[list[TopicT], list[TopicT]]:
    """Topics by name or by id: those that may be touched, and those that may not. Unknown ids are the handler's."""
    names = [name_of(call, topic.name, topic.topic_id) for topic in topics]
    good_names = allowed(call, operation, Kind.TOPIC, (name for name in names if name is not None))
    is_good = [name is None or name in good_names for name in names]
    return (
        [topic for topic, good in zip(topics, is_good, strict=True) if good],
        [topic for topic, good in zip(topics, is_good, strict=True) if not good],
    )


def guard_list_offsets(call: Call[BrokerNode], request: list_offsets.ListOffsetsRequest) -> None:
    """DESCRIBE on each topic."""
    request.topics, bad = split(call, Operation.DESCRIBE, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=TOPIC_REFUSED
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_offset_for_leader_epoch(
    call: Call[BrokerNode], request: offset_for_leader_epoch.OffsetForLeaderEpochRequest
) -> None:
    """Brokers may; others need DESCRIBE on each topic."""
    if may(call, Operation.CLUSTER_ACTION, Kind.CLUSTER, log_if_denied=False):
        return
    request.topics, bad = split(call, Operation.DESCRIBE, Kind.TOPIC, request.topics, lambda topic: topic.topic)
    answered_with(
        call,
        "topics",
        (
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEndOffset(partition=part.partition, error_code=TOPIC_REFUSED)
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_delete_records(call: Call[BrokerNode], request: delete_records.DeleteRecordsRequest) -> None:
    """DELETE on each topic."""
    request.topics, bad = split(call, Operation.DELETE, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(
                        partition_index=part.partition_index, low_watermark=-1, error_code=TOPIC_REFUSED
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_describe_producers(call: Call[BrokerNode], request: describe_producers.DescribeProducersRequest) -> None:
    """READ on each topic."""
    request.topics, bad = split(call, Operation.READ, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            describe_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    describe_producers.PartitionResponse(
                        partition_index=number,
                        error_code=TOPIC_REFUSED,
                        error_message=error_of(Kind.TOPIC).message,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in bad
        ),
    )


def guard_init_producer_id(call: Call[BrokerNode], request: InitProducerIdRequest) -> None:
    """WRITE on the transactional id; without one, the right to write anything at all, or IDEMPOTENT_WRITE."""
    if request.transactional_id is not None:
        require_transactional_id(call, Operation.WRITE, request.transactional_id)
        if request.enable2_pc:
            require_transactional_id(call, Operation.TWO_PHASE_COMMIT, request.transactional_id)
        return
    if may(call, Operation.IDEMPOTENT_WRITE, Kind.CLUSTER, log_if_denied=False):
        return
    authorizer = call.node.authorizer
    if authorizer is not None and not authorizer.authorize_any(call, Operation.WRITE, Kind.TOPIC):
        raise ClusterAuthorizationFailed("Cluster authorization failed.")


def guard_metadata(call: Call[BrokerNode], request: metadata.MetadataRequest) -> None:
    """DESCRIBE on each topic: those that are not asked for by name are not told of. CREATE on what would be created."""
    if request.topics is None or (call.version == 0 and not request.topics):
        call.amend = lambda response: _only_describable(call, response)
        return
    asked = request.topics
    by_id = any(topic.topic_id != ZERO_UUID for topic in asked)
    if by_id:
        names = {topic.topic_id: name_of(call, "", topic.topic_id) for topic in asked if topic.topic_id != ZERO_UUID}
        describable = allowed(call, Operation.DESCRIBE, Kind.TOPIC, (name for name in names.values() if name))
        kept = [each for each in asked if (name := names.get(each.topic_id)) is None or name in describable]
        refused = [
            metadata.MetadataResponseTopic(error_code=TOPIC_REFUSED, name=None, topic_id=topic_id)
            for topic_id, name in names.items()
            if name is not None and name not in describable
        ]
    else:
        given = list(dict.fromkeys(topic.name or "" for topic in asked))
        describable = allowed(call, Operation.DESCRIBE, Kind.TOPIC, given)
        uncreatable = _uncreatable(call, request, [name for name in given if name in describable])
        bad = {name for name in given if name not in describable} | uncreatable
        kept = [each for each in asked if (each.name or "") not in bad]
        refused = [
            metadata.MetadataResponseTopic(
                error_code=TOPIC_REFUSED, name=name, is_internal=name in uncreatable and name in INTERNAL_TOPICS
            )
            for name in given
            if name in bad
        ]
    if not refused:
        return
    request.topics = kept
    is_empty = not kept
    call.amend = lambda response: _with_refused(response, refused, alone=is_empty)


def _only_describable(call: Call[BrokerNode], response: metadata.MetadataResponse) -> metadata.MetadataResponse:
    asked = (topic.name or "" for topic in response.topics)
    names = allowed(call, Operation.DESCRIBE, Kind.TOPIC, asked, log_if_denied=False)
    response.topics = [topic for topic in response.topics if topic.name in names]
    return response


def _uncreatable(call: Call[BrokerNode], request: metadata.MetadataRequest, names: list[str]) -> set[str]:
    """The topics that would be created by asking for them, but not by this client."""
    if call.node.create_missing_topics is None or not (request.allow_auto_topic_creation or call.version < 4):
        return set()
    missing = [name for name in names if call.node.image.topic(name) is None]
    if not missing or may(call, Operation.CREATE, Kind.CLUSTER, log_if_denied=False):
        return set()
    creatable = allowed(call, Operation.CREATE, Kind.TOPIC, missing)
    return {name for name in missing if name not in creatable}


def _with_refused(
    response: metadata.MetadataResponse, refused: list[metadata.MetadataResponseTopic], *, alone: bool
) -> metadata.MetadataResponse:
    # In v0 a request for no topics means all of them.
    response.topics = refused if alone else [*response.topics, *refused]
    return response
