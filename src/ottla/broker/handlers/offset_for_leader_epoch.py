"""OffsetForLeaderEpoch (key 23): where a leader's term ended, by which a reader sees that a log was cut (KIP-320).

v2 the epoch that the reader believes in · v3 who asks · v4 flexible. Only the leader answers, whoever asks.
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
    """The error for each partition."""
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
    """Look up each partition that is asked for."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_of(call, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of(call: Call[BrokerNode], topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.node.partitions.get(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
