"""ListTransactions (key 66): the transactions that this broker coordinates.

v1 filters by duration (KIP-994) · v2 filters by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_list_transactions
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.groups.consumer.regexes import compile_regex
from ottla.coordinators.transactions.describing import find_transactions, unknown_states
from ottla.protocol.errors import CoordinatorLoading
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@endpoint(ApiKey.LIST_TRANSACTIONS, guard=guard_list_transactions)
def list_transactions(call: Call[BrokerNode], request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Return the transactions that match the filters."""
    pattern = None
    if request.transactional_id_pattern:
        pattern = compile_regex(request.transactional_id_pattern)
    transactions: list[TransactionState] = []
    for shard in call.node.transactions.shards:
        if not shard.is_active:
            raise CoordinatorLoading(f"{shard} is loading")
        transactions += find_transactions(
            shard.state,
            call.node.now_ms(),
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            longer_than_ms=request.duration_filter,
            pattern=pattern,
        )
    return ListTransactionsResponse(
        unknown_state_filters=unknown_states(request.state_filters), transaction_states=transactions
    )
