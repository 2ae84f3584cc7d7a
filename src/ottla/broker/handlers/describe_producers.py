"""DescribeProducers (key 61): the active producers of partitions, to find hanging transactions (KIP-664)."""

from __future__ import annotations

from ottla.broker.authorization.data_guards import guard_describe_producers
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.topic_names import check_topic_name
from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ottla.storage.log.producer_snapshot import Producer

_NO_TRANSACTION = -1


def describe_producers_failed(
    request: DescribeProducersRequest, version: int, error: ApiError
) -> DescribeProducersResponse:
    """Return the error for each partition."""
    return DescribeProducersResponse(topics=[_failed(topic, error) for topic in request.topics])


@endpoint(ApiKey.DESCRIBE_PRODUCERS, failed=describe_producers_failed, guard=guard_describe_producers)
def describe_producers(call: Call[BrokerNode], request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe the producers of each partition that has a replica on this broker."""
    return DescribeProducersResponse(topics=[_topic(call, topic) for topic in request.topics])


def _topic(call: Call[BrokerNode], topic: TopicRequest) -> TopicResponse:
    try:
        check_topic_name(topic.name)
        if call.node.image.topic(topic.name) is None:
            raise UnknownTopicOrPartition(f"there is no topic {topic.name}")
    except ApiError as error:
        return _failed(topic, error)
    return TopicResponse(
        name=topic.name, partitions=[_partition(call, topic.name, index) for index in topic.partition_indexes]
    )


def _partition(call: Call[BrokerNode], topic: str, index: int) -> PartitionResponse:
    try:
        log = call.node.partitions.get(topic, index).log
    except ApiError as error:  # without a message, as in Kafka
        return PartitionResponse(partition_index=index, error_code=error.code)
    return PartitionResponse(partition_index=index, active_producers=[_state(producer) for producer in log.producers])


def _state(producer: Producer) -> ProducerState:
    started = producer.transaction_start
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NO_TRANSACTION if started is None else started,
    )


def _failed(topic: TopicRequest, error: ApiError) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
            for index in topic.partition_indexes
        ],
    )
