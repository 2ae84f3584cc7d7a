"""AddOffsetsToTxn (key 25): add the offsets of a group to a transaction.

The transaction gets the partition of `__consumer_offsets` that stores the group. v2 answers PRODUCER_FENCED.
"""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_add_offsets
from ottla.broker.handlers.transaction_errors import client_error
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.runtime.shards import partition_for
from ottla.coordinators.runtime.transactions.marker_writing import GROUPS_TOPIC
from ottla.coordinators.transactions.partitions import add_partitions
from ottla.coordinators.transactions.state import TopicPartition
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def add_offsets_to_txn_failed(
    request: AddOffsetsToTxnRequest, version: int, error: ApiError
) -> AddOffsetsToTxnResponse:
    """Return the error alone."""
    return AddOffsetsToTxnResponse(error_code=client_error(error, version, fenced_since=2).code)


@endpoint(ApiKey.ADD_OFFSETS_TO_TXN, failed=add_offsets_to_txn_failed, guard=guard_add_offsets)
def add_offsets_to_txn(call: Call[BrokerNode], request: AddOffsetsToTxnRequest) -> Later:
    """Let the transaction's coordinator decide."""
    transactions = call.node.transactions
    if not request.transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    where = TopicPartition(GROUPS_TOPIC, group_partition(call.node, request.group_id))
    return submit_to_coordinator(
        transactions.shards.shard_for(request.transactional_id),
        CallTicket(call, request),
        lambda state: add_partitions(
            state,
            transactions.context(),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            client_version=0,
            reply=AddOffsetsToTxnResponse(),
        ),
    )


def group_partition(node: BrokerNode, group_id: str) -> int:
    """Return the partition that stores a group, even if the topic does not exist yet."""
    number = node.groups.partition_of(group_id)
    if number is None:
        number = partition_for(group_id, int(node.setting("offsets.topic.num.partitions")))
    return number
