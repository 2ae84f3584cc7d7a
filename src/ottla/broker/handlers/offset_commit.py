"""OffsetCommit (key 8): store a group's committed offsets.

v2 to v4 may have a retention time · v7 static members · v9 an error of its own for a missing group · v10 topic ids.
"""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_offset_commit
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.offsets import commit_offsets
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def offset_commit_failed(request: OffsetCommitRequest, version: int, error: ApiError) -> OffsetCommitResponse:
    """Return the error for each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@endpoint(ApiKey.OFFSET_COMMIT, failed=offset_commit_failed, guard=guard_offset_commit)
def offset_commit(call: Call[BrokerNode], request: OffsetCommitRequest) -> Later:
    """Let the group's coordinator decide."""
    context = context_of(call)
    shard = call.node.groups.shard_for(request.group_id)
    return submit_to_coordinator(
        shard, CallTicket(call, request), lambda state: commit_offsets(state, request, context)
    )
