"""Guards of the APIs for records, offsets and topics.

Fetch and ShareFetch have none: their handlers ask the authorizer, because sessions outlast requests.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization.access_checks import (
    TOPIC_DENIED,
    append_denied,
    authorization_error,
    filter_allowed,
    is_allowed,
    require_transactional_id,
    split_allowed,
)
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.authorization.guards import ItemGuard, resolve_topic_name, topic_name
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, CloseConnection
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS
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
    """Require WRITE on each topic, and on the transactional id if any batch belongs to a transaction."""
    if request.transactional_id is not None and has_transactional_records(request):
        require_transactional_id(call, Operation.WRITE, request.transactional_id)
    request.topic_data, denied = split_allowed(
        call, Operation.WRITE, ResourceType.TOPIC, request.topic_data, partial(topic_name, call)
    )
    if not denied:
        return
    if request.acks == 0:
        call.amend = lambda _: CloseConnection("it produced with acks=0 to a topic that it may not write")
        return
    results: dict[tuple[str, bytes], produce.TopicProduceResponse] = {}
    for topic in denied:
        key = (topic.name, topic.topic_id)
        result = results.setdefault(key, produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id))
        result.partition_responses += [
            produce.PartitionProduceResponse(index=partition.index, error_code=TOPIC_DENIED, base_offset=-1)
            for partition in topic.partition_data
        ]
    append_denied(call, "responses", results.values())


def has_transactional_records(request: produce.ProduceRequest) -> bool:
    """Return whether any of the batches belongs to a transaction."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            data = partition.records
            if (
                isinstance(data, memoryview)
                and len(data) >= HEADER_BYTES
                and data[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
            ):
                return True
    return False


guard_list_offsets = ItemGuard(
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: list_offsets.ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            list_offsets.ListOffsetsPartitionResponse(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    ),
)

guard_offset_for_leader_epoch = ItemGuard(
    exempt=Operation.CLUSTER_ACTION,
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.TOPIC,
    items="topics",
    name_of=lambda _, topic: str(topic.topic),
    results="topics",
    deny=lambda topic: offset_for_leader_epoch.OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            offset_for_leader_epoch.EpochEndOffset(partition=partition.partition, error_code=TOPIC_DENIED)
            for partition in topic.partitions
        ],
    ),
)
"""Brokers need no right to the topics."""

guard_delete_records = ItemGuard(
    operation=Operation.DELETE,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: delete_records.DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            delete_records.DeleteRecordsPartitionResult(
                partition_index=partition.partition_index, low_watermark=-1, error_code=TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    ),
)

guard_describe_producers = ItemGuard(
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: describe_producers.TopicResponse(
        name=topic.name,
        partitions=[
            describe_producers.PartitionResponse(
                partition_index=index,
                error_code=TOPIC_DENIED,
                error_message=authorization_error(ResourceType.TOPIC).message,
            )
            for index in topic.partition_indexes
        ],
    ),
)


def guard_init_producer_id(call: Call[BrokerNode], request: InitProducerIdRequest) -> None:
    """Require WRITE on the transactional id; without one, IDEMPOTENT_WRITE, or WRITE on any topic."""
    if request.transactional_id is not None:
        require_transactional_id(call, Operation.WRITE, request.transactional_id)
        if request.enable2_pc:
            require_transactional_id(call, Operation.TWO_PHASE_COMMIT, request.transactional_id)
        return
    if is_allowed(call, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, log_if_denied=False):
        return
    authorizer = call.node.authorizer
    if authorizer is not None and not authorizer.authorize_any(call, Operation.WRITE, ResourceType.TOPIC):
        raise authorization_error(ResourceType.CLUSTER)


def guard_metadata(call: Call[BrokerNode], request: metadata.MetadataRequest) -> None:
    """Require DESCRIBE on each topic, and CREATE on those that the request creates.

    A request for all topics gets those that the client may describe.
    """
    if request.topics is None or (call.version == 0 and not request.topics):
        call.amend = lambda response: _keep_describable(call, response)
        return
    if any(topic.topic_id != ZERO_UUID for topic in request.topics):
        kept, denied = _split_by_id(call, request.topics)
    else:
        kept, denied = _split_by_name(call, request, request.topics)
    if not denied:
        return
    request.topics = kept
    # In v0 a request for no topics means all of them.
    has_kept = bool(kept)

    def amend(response: metadata.MetadataResponse) -> metadata.MetadataResponse:
        response.topics = [*response.topics, *denied] if has_kept else denied
        return response

    call.amend = amend


def _split_by_id(
    call: Call[BrokerNode], topics: list[metadata.MetadataRequestTopic]
) -> tuple[list[metadata.MetadataRequestTopic], list[metadata.MetadataResponseTopic]]:
    names = {
        topic.topic_id: resolve_topic_name(call, "", topic.topic_id) for topic in topics if topic.topic_id != ZERO_UUID
    }
    describable = filter_allowed(
        call, Operation.DESCRIBE, ResourceType.TOPIC, (name for name in names.values() if name)
    )
    kept = [topic for topic in topics if (name := names.get(topic.topic_id)) is None or name in describable]
    denied = [
        metadata.MetadataResponseTopic(error_code=TOPIC_DENIED, name=None, topic_id=topic_id)
        for topic_id, name in names.items()
        if name is not None and name not in describable
    ]
    return kept, denied


def _split_by_name(
    call: Call[BrokerNode], request: metadata.MetadataRequest, topics: list[metadata.MetadataRequestTopic]
) -> tuple[list[metadata.MetadataRequestTopic], list[metadata.MetadataResponseTopic]]:
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    describable = filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    uncreatable = _find_uncreatable(call, request, [name for name in names if name in describable])
    denied_names = {name for name in names if name not in describable} | uncreatable
    kept = [topic for topic in topics if (topic.name or "") not in denied_names]
    denied = [
        metadata.MetadataResponseTopic(
            error_code=TOPIC_DENIED, name=name, is_internal=name in uncreatable and name in INTERNAL_TOPICS
        )
        for name in names
        if name in denied_names
    ]
    return kept, denied


def _keep_describable(call: Call[BrokerNode], response: metadata.MetadataResponse) -> metadata.MetadataResponse:
    names = (topic.name or "" for topic in response.topics)
    describable = filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=False)
    response.topics = [topic for topic in response.topics if topic.name in describable]
    return response


def _find_uncreatable(call: Call[BrokerNode], request: metadata.MetadataRequest, names: list[str]) -> set[str]:
    """Return the topics that the request would create, and this client may not create."""
    if call.node.create_missing_topics is None or not (request.allow_auto_topic_creation or call.version < 4):
        return set()
    missing = [name for name in names if call.node.image.topic(name) is None]
    if not missing or is_allowed(call, Operation.CREATE, ResourceType.CLUSTER, log_if_denied=False):
        return set()
    creatable = filter_allowed(call, Operation.CREATE, ResourceType.TOPIC, missing)
    return {name for name in missing if name not in creatable}
