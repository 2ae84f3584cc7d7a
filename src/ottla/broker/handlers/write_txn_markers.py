"""WriteTxnMarkers (key 27): a coordinator or an administrator ends transactions on partitions that this broker leads.

v2 has the transaction's version, for a stricter check of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.authorization.group_guards import guard_write_txn_markers
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.runtime.transactions.marker_writing import ErrorCodes
from ottla.coordinators.transactions.state import TopicPartition
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.storage.state_machine.entries import Marker


def write_txn_markers_failed(request: WriteTxnMarkersRequest, version: int, error: ApiError) -> WriteTxnMarkersResponse:
    """Return the error for each partition of each marker."""
    return _response(request, [dict.fromkeys(_partitions(marker), error.code) for marker in request.markers])


@endpoint(ApiKey.WRITE_TXN_MARKERS, failed=write_txn_markers_failed, guard=guard_write_txn_markers)
def write_txn_markers(call: Call[BrokerNode], request: WriteTxnMarkersRequest) -> Later:
    """Write all markers. The answer is sent when all in-sync replicas have them."""
    gathering: Gathering[ErrorCodes] = Gathering(
        len(request.markers), lambda codes: call.answer(_response(request, codes))
    )
    for number, written in enumerate(request.markers):
        marker = Marker(
            written.producer_id,
            written.producer_epoch,
            written.transaction_result,
            written.coordinator_epoch,
            written.transaction_version,
        )
        _write(call, marker, _partitions(written), gathering, number)
    return gathering.all_requested()


def _write(
    call: Call[BrokerNode], marker: Marker, where: list[TopicPartition], gathering: Gathering[ErrorCodes], number: int
) -> None:
    call.node.transactions.writer.write(marker, where, lambda codes: gathering.take(number, codes))


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]


def _response(request: WriteTxnMarkersRequest, codes_by_marker: Sequence[ErrorCodes]) -> WriteTxnMarkersResponse:
    """Return one result for each producer, also if it has several markers."""
    by_producer: dict[int, ErrorCodes] = {}
    for marker, codes in zip(request.markers, codes_by_marker, strict=True):
        if codes:
            by_producer.setdefault(marker.producer_id, {}).update(codes)
    return WriteTxnMarkersResponse(markers=[_result(producer_id, codes) for producer_id, codes in by_producer.items()])


def _result(producer_id: int, codes: ErrorCodes) -> WritableTxnMarkerResult:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for where, code in codes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=where.partition, error_code=code)
        topics.setdefault(where.topic, []).append(result)
    return WritableTxnMarkerResult(
        producer_id=producer_id,
        topics=[WritableTxnMarkerTopicResult(name=name, partitions=results) for name, results in topics.items()],
    )
