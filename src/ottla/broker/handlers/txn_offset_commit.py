"""TxnOffsetCommit (key 28): store the offsets of a group, valid once the transaction commits.

v3 checks the member and its generation (KIP-447) · v5 also adds the group to the transaction (KIP-890).
"""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_txn_offset_commit
from ottla.broker.handlers.verification import commit_when_verified
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.offsets import commit_in_transaction
from ottla.protocol.errors import ApiError, InvalidGroupId
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def txn_offset_commit_failed(request: TxnOffsetCommitRequest, version: int, error: ApiError) -> TxnOffsetCommitResponse:
    """Return the error for each partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@endpoint(ApiKey.TXN_OFFSET_COMMIT, failed=txn_offset_commit_failed, guard=guard_txn_offset_commit)
def txn_offset_commit(call: Call[BrokerNode], request: TxnOffsetCommitRequest) -> Later:
    """Let the group's coordinator decide."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    context = context_of(call)
    shard = call.node.groups.shard_for(request.group_id)
    return commit_when_verified(call, request, shard, lambda state: commit_in_transaction(state, request, context))
