"""The two requests of a producer: InitProducerId and Produce."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from ottla.client.cluster import Cluster
from ottla.client.metadata import TopicPartition, nodes_by_id, partition_label
from ottla.client.producer_batches import BatchResult, ProducerIdentity
from ottla.client.retries import error_from_code, raise_for_code
from ottla.protocol.errors import ApiError, AuthorizationError, NetworkFailed, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.rpc.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.wire.types import ZERO_UUID

_LAST_WITH_NAMES: Final = 12

BatchAnswer: TypeAlias = BatchResult | tuple[ApiError, bool]
"""The result of a batch, or its error and whether the response named a new leader."""


async def init_producer_id(cluster: Cluster, *, required: bool) -> ProducerIdentity | None:
    """Get a new producer id. Return None if the cluster refuses one, unless it is `required`."""

    async def attempt() -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer: InitProducerIdResponse = await cluster.send(request)
        raise_for_code(answer.error_code, None, "producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    try:
        return await cluster.retry(attempt)
    except (UnsupportedVersion, AuthorizationError):
        if required:
            raise
        return None


async def send_batches(
    cluster: Cluster, node: int, payloads: Mapping[TopicPartition, bytearray], acks: int
) -> dict[TopicPartition, BatchAnswer]:
    """Send batches to the leader of their partitions. Return the result of each."""
    names: dict[bytes, str] = {}
    topics: dict[str, TopicProduceData] = {}
    for (name, partition), payload in payloads.items():
        if name not in topics:
            cached = cluster.cached_topic(name)
            topic_id = ZERO_UUID if cached is None else cached.id
            names[topic_id] = name
            topics[name] = TopicProduceData(name=name, topic_id=topic_id)
        topics[name].partition_data.append(PartitionProduceData(index=partition, records=payload))
    request = ProduceRequest(
        acks=acks, timeout_ms=int(cluster.request_timeout_s * 1000), topic_data=list(topics.values())
    )
    connection = await cluster.connection(node)
    version = connection.version_of(ApiKey.PRODUCE, at_most=_LAST_WITH_NAMES if ZERO_UUID in names else None)
    if acks == 0:
        await connection.post(request, version=version)
        return dict.fromkeys(payloads, BatchResult(-1, -1))
    answer: ProduceResponse = await connection.send(request, version=version, timeout_s=cluster.request_timeout_s + 5)
    nodes = nodes_by_id(answer.node_endpoints)
    answers: dict[TopicPartition, BatchAnswer] = {}
    for topic in answer.responses:
        name = names.get(topic.topic_id, "") if version > _LAST_WITH_NAMES else topic.name
        for result in topic.partition_responses:
            if not result.error_code:
                answers[name, result.index] = BatchResult(result.base_offset, result.log_append_time_ms)
                continue
            hint, moved = result.current_leader, False
            if hint is not None:
                moved = cluster.note_leader(name, result.index, hint.leader_id, hint.leader_epoch, nodes)
            answers[name, result.index] = _error(result, name, connection.address), moved
    for key in payloads:
        if key not in answers:
            answers[key] = (
                NetworkFailed(f"{connection.address} left out {partition_label(*key)} in its response"),
                False,
            )
    return answers


def _error(answer: PartitionProduceResponse, topic: str, address: str) -> ApiError:
    message = answer.error_message
    if answer.record_errors and (first := answer.record_errors[0].batch_index_error_message):
        message = f"record {answer.record_errors[0].batch_index} of the batch: {first}"
    return error_from_code(answer.error_code, message, f"{partition_label(topic, answer.index)} at {address}")
