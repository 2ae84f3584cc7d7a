"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, from which a reader detects truncation (KIP-320).

v2 the reader's current leader epoch · v3 the replica id · v4 flexible. Only the leader answers, also to consumers.
"""

from __future__ import annotations

from ottla.broker.authorization.data_guards import guard_offset_for_leader_epoch
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch_failed(
    request: OffsetForLeaderEpochRequest, version: int, error: ApiError
) -> OffsetForLeaderEpochResponse:
    """Return the error for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=part.partition, error_code=error.code) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@endpoint(ApiKey.OFFSET_FOR_LEADER_EPOCH, failed=offset_for_leader_epoch_failed, guard=guard_offset_for_leader_epoch)
def offset_for_leader_epoch(
    call: Call[BrokerNode], request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look up each requested partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_of(call, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of(call: Call[BrokerNode], topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.node.partitions.get(topic, requested.partition)
        partition.check_leader(requested.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=requested.partition, error_code=error.code)
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_for(requested.leader_epoch, log.log_end_offset)
    return EpochEndOffset(partition=requested.partition, leader_epoch=epoch, end_offset=end_offset)
