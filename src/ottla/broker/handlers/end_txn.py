"""EndTxn (key 26): commit or abort a transaction.

v2 answers PRODUCER_FENCED · v5 bumps the producer epoch and returns the next one (KIP-890). The answer is sent when the
outcome is in the log; the markers follow.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.group_guards import guard_end_txn
from ottla.broker.handlers.transaction_errors import client_error
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.transactions.ending import end_transaction
from ottla.coordinators.transactions.state import EPOCH_BUMPING
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_TO_BUMP: Final = 5


def end_txn_failed(request: EndTxnRequest, version: int, error: ApiError) -> EndTxnResponse:
    """Return the error alone."""
    return EndTxnResponse(error_code=client_error(error, version, fenced_since=2).code)


@endpoint(ApiKey.END_TXN, failed=end_txn_failed, guard=guard_end_txn)
def end_txn(call: Call[BrokerNode], request: EndTxnRequest) -> Later:
    """Let the transaction's coordinator decide."""
    transactions = call.node.transactions
    if not request.transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    return submit_to_coordinator(
        transactions.shards.shard_for(request.transactional_id),
        CallTicket(call, request),
        lambda state: end_transaction(
            state,
            transactions.context(),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            client_version=EPOCH_BUMPING if call.version >= _FIRST_TO_BUMP else 0,
        ),
    )
